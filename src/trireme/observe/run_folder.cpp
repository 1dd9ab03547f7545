#include "trireme/observe/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/fault.h"
#include "trireme/base/file.h"
#include "trireme/base/host.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCure = "choose a folder that can be written: --observe.run_dir FOLDER";
constexpr uint64_t kMostRuns = 1'000'000'000;

void make_run_folders(const fs::path& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) throw SystemError(fmt::format("make the folder {}", folder.string()), failed.value(), kCure);
  // create_directories is content with a link to nowhere, for one.
  if (!fs::is_directory(folder, failed)) {
    throw SystemError(fmt::format("use {} as a folder", folder.string()), ENOTDIR, kCure);
  }
}

/// N of "NAME-N".
std::optional<uint64_t> number_of(std::string_view entry, const std::string& name) {
  const std::string start = name + "-";
  if (!entry.starts_with(start)) return std::nullopt;
  entry.remove_prefix(start.size());
  uint64_t number = 0;
  const auto [end, failed] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (failed != std::errc() || end != entry.data() + entry.size() || number >= kMostRuns) return std::nullopt;
  return number;
}

/// One above the highest, not the first gap: later runs have higher numbers.
uint64_t next_number(const fs::path& root, const std::string& name) {
  uint64_t highest = 0;
  std::error_code failed;
  fs::directory_iterator entry(root, failed);
  for (; !failed && entry != fs::directory_iterator(); entry.increment(failed)) {
    highest = std::max(highest, number_of(entry->path().filename().string(), name).value_or(0));
  }
  if (failed) throw SystemError(fmt::format("list the folder {}", root.string()), failed.value(), kCure);
  return highest + 1;
}

void check_name(const std::string& name) {
  if (!name.empty() && name != "." && name != ".." &&
      name.find_first_of(std::string("/\n\0", 3)) == std::string::npos && name.size() <= 200) {
    return;
  }
  throw UsageError(fmt::format("\"{}\" cannot be the name of a run: it becomes the folder NAME-1", name),
                   "use letters, digits, '-', '_' and '.', at most 200 of them");
}

// [Note: The newest run]
// A link from ROOT/latest to the run folder would be one line, but TensorBoard follows links: it would show the newest
// run twice. So ROOT/latest leads to a hidden folder with links to the run's files, all but those for TensorBoard:
//
//   runs/latest -> .latest-default-3        runs/.latest-default-3/report.html -> ../default-3/report.html
//
// The one link still changes at once, so nobody sees files of two runs.
constexpr const char* kLinked[] = {"config.toml", "events.jsonl", "report.html", "checkpoints", "traces", "trace.json"};

/// Best effort: a run without the link is as good.
void point_latest(const fs::path& root, const fs::path& folder) {
  const fs::path latest = root / "latest", name = folder.filename(), links = root / (".latest-" + name.string());
  std::error_code failed, ignored;
  if (fs::exists(fs::symlink_status(latest, failed)) && !fs::is_symlink(fs::symlink_status(latest, failed))) return;
  // Whoever replaces a link removes what it led to; the lock ends with the descriptor.
  const Fd lock(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (lock.get() >= 0) ::flock(lock.get(), LOCK_EX);
  const fs::path old = fs::read_symlink(latest, ignored);
  fs::create_directory(links, failed);
  for (const char* file : kLinked) {
    if (!failed) fs::create_symlink(fs::path("..") / name / file, links / file, failed);
  }
  // A new link is renamed over the old one: there is always one.
  const fs::path temporary = root / fmt::format(".latest-{}-{}.new", name.string(), ::getpid());
  if (!failed) fs::create_symlink(links.filename(), temporary, failed);
  if (!failed) fs::rename(temporary, latest, failed);
  if (failed) {
    fs::remove(temporary, ignored);
    fs::remove_all(links, ignored);
    log_info("no link {}: {}", latest.string(), failed.message());
  } else if (old.string().starts_with(".latest-") && old != links.filename()) {
    fs::remove_all(root / old.filename(), ignored);
  }
}

}  // namespace

RunPaths run_at(const fs::path& given) {
  std::error_code failed;
  const fs::path to = fs::read_symlink(given / "config.toml", failed);
  if (failed) return {given};
  const fs::path folder = fs::weakly_canonical(given, failed) / to;
  return {fs::proximate(folder.lexically_normal().parent_path(), failed)};
}

bool is_in_use(const RunPaths& run) {
  const Fd fd(::open(run.lock().c_str(), O_RDONLY | O_CLOEXEC));
  return fd.get() >= 0 && ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

RunFolder RunFolder::create(const fs::path& root, const std::string& name) {
  check_name(name);
  make_run_folders(root);
  for (uint64_t number = next_number(root, name);; ++number) {
    const fs::path folder = root / fmt::format("{}-{}", name, number);
    // mkdir decides between jobs that have seen the same number free.
    const int pretended = fault_errno("run_folder.mkdir");
    if (pretended == 0 && ::mkdir(folder.c_str(), 0777) == 0) {
      RunFolder run(RunPaths{folder});
      point_latest(root, folder);
      return run;
    }
    const int failed = pretended != 0 ? pretended : errno;
    if (failed != EEXIST) throw SystemError(fmt::format("make the folder {}", folder.string()), failed, kCure);
  }
}

RunFolder RunFolder::open(const fs::path& folder) {
  make_run_folders(folder);
  return RunFolder(RunPaths{folder});
}

RunFolder::RunFolder(RunPaths paths) : paths_(std::move(paths)) {
  take_lock();
  make_run_folders(paths_.checkpoints());
}

void RunFolder::take_lock() {
  const std::string path = paths_.lock().string();
  lock_ = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (lock_.get() < 0)
    throw SystemError(fmt::format("write to the run folder {}", paths_.folder.string()), errno, kCure);
  const int pretended = fault_errno("run_folder.lock");
  const int failed = pretended != 0 ? pretended : ::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0 ? errno : 0;
  if (failed == EWOULDBLOCK) {
    std::string holder(trim(read_whole_file(path, 4096)));
    if (holder.empty()) holder = "another job";  // it has the lock, and writes its name next
    throw Error(fmt::format("the run folder {} is in use by {}", paths_.folder.string(), holder),
                "wait for it or stop it, or take another folder: --observe.run_dir FOLDER");
  }
  if (failed != 0) {
    log_warn("{} cannot be locked ({}): take care that no other job uses this folder", path,
             std::generic_category().message(failed));
  }
  // Also the proof that the disk takes something: better now than after an hour.
  const std::string holder = fmt::format("pid {} on {}\n", ::getpid(), host_name());
  int write_failed = fault_errno("run_folder.write");
  if (write_failed == 0 && (::ftruncate(lock_.get(), 0) != 0 || ::pwrite(lock_.get(), holder.data(), holder.size(),
                                                                         0) != static_cast<ssize_t>(holder.size()))) {
    write_failed = errno != 0 ? errno : ENOSPC;
  }
  if (write_failed != 0) {
    throw SystemError(fmt::format("write to the run folder {}", paths_.folder.string()), write_failed, kCure);
  }
}

}  // namespace trireme
