#include "trireme/config/model_library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>

#include "trireme/base/deadline.h"
#include "trireme/base/error.h"
#include "trireme/base/fd.h"
#include "trireme/base/file.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/version.h"
#include "trireme/config/library_problem.h"
#include "trireme/config/value.h"

namespace trireme {
namespace {

constexpr auto kMostSeconds = std::chrono::seconds(60);
constexpr const char* kUnderDebugger =
    "a static object or TRIREME_MODEL_LIBRARY fails: run the model in a small program under a debugger";

/// Identifies the version of a file, by size and time of modification.
std::string version_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    refuse_library(path, {"there is no such file", "give the path of a shared library"});
  }
  return fmt::format("{} bytes, {}.{:09}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

void write_all(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

int answer_file = -1;

/// Writes the child's answer and ends the process: '+' and the library's description, or '-', problem, '\0' and cure.
[[noreturn]] void answer(const std::string& text) {
  write_all(answer_file, text);
  ::_exit(0);
}
[[noreturn]] void answer(const LibraryProblem& problem) { answer('-' + problem.problem + '\0' + problem.cure); }

[[noreturn]] void answer_what_was_thrown() {
  std::string what;
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    what = fmt::format(": {}", error.what());
  } catch (...) {
  }
  answer({"it throws while it is opened" + what, "a static object or TRIREME_MODEL_LIBRARY throws this"});
}

/// Runs in the child process, because opening a library runs its code.
[[noreturn]] void open_and_answer(const std::string& path) {
  std::set_terminate(answer_what_was_thrown);
  try {
    void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) answer(problem_of_loading(path, ::dlerror()));
    const auto stamp = reinterpret_cast<const char* (*)()>(::dlsym(library, "trireme_library_stamp"));
    if (!stamp) answer(without_macro());
    if (!std::string_view(stamp()).starts_with(library_stamp())) answer(of_other_version(stamp(), library_stamp()));
    const auto describe_models = reinterpret_cast<void (*)(std::string&)>(::dlsym(library, "trireme_library_describe"));
    if (!describe_models) answer(without_macro());
    std::string text;
    describe_models(text);
    answer('+' + text);
  } catch (...) {
    answer_what_was_thrown();
  }
}

std::string read_until(int file, Deadline deadline, bool& in_time) {
  std::string text;
  char piece[4096];
  while (true) {
    pollfd waits{file, POLLIN, 0};
    const int ready = ::poll(&waits, 1, deadline.left_ms(1000));
    if (ready < 0 && errno == EINTR) continue;
    in_time = ready > 0 || !deadline.expired();
    if (!in_time) return text;
    if (ready == 0) continue;
    const ssize_t n = ::read(file, piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(piece, static_cast<size_t>(n));
  }
}

/// Starts the child process and returns the library's description.
std::string ask(const std::string& path) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("open a pipe", errno);
  const Fd from(ends[0]);
  Fd to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) throw SystemError("start a process that opens " + path, errno);
  if (child == 0) {
    answer_file = to.get();
    open_and_answer(path);
  }
  to = Fd();
  bool in_time = true;
  std::string said = read_until(from.get(), Deadline::after(kMostSeconds), in_time);
  if (!in_time) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!in_time) {
    refuse_library(path, {fmt::format("opening it takes more than {} s", kMostSeconds.count()), kUnderDebugger});
  }
  if (said.empty()) {
    refuse_library(path, {WIFSIGNALED(status) ? fmt::format("opening it ends in signal {} ({})", WTERMSIG(status),
                                                            ::strsignal(WTERMSIG(status)))
                                              : std::string("it ends the process that opens it"),
                          kUnderDebugger});
  }
  const std::string text = said.substr(1);
  if (said[0] == '+') return text;
  const size_t end = text.find('\0');
  refuse_library(path, {text.substr(0, end), end == text.npos ? "" : text.substr(end + 1)});
}

Json json_of(const Value& value) {
  return std::visit([](const auto& held) { return Json(held); }, value);
}

std::vector<LibraryModelKeys> models_from(const Json& json) {
  std::vector<LibraryModelKeys> models;
  for (const Json& model : json) {
    LibraryModelKeys& made = models.emplace_back();
    made.name = model.at("name");
    made.meaning = model.at("meaning");
    made.samples = static_cast<SampleKind>(model.at("samples").get<int>());
    for (const Json& key : model.at("keys")) {
      made.keys.push_back({key.at("name"), value_from(key.at("value")), key.at("meaning"), key.at("least"),
                           key.at("most"), key.at("names")});
    }
  }
  return models;
}

/// The models from the cache file next to the library; nullopt if it is missing, invalid or of another version.
std::optional<std::vector<LibraryModelKeys>> kept(const std::string& path, const std::string& version) {
  try {
    const Json json = Json::parse(read_whole_file(path + ".json", 1 << 20));
    if (json.at("library") != version || json.at("for") != library_stamp()) return std::nullopt;
    return models_from(json.at("models"));
  } catch (const std::exception&) {  // missing or invalid
    return std::nullopt;
  }
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

}  // namespace

std::string library_stamp() { return fmt::format("Trireme {}", kVersion); }

const LibraryModelKeys& ModelLibraryKeys::find(std::string_view name) const {
  for (const LibraryModelKeys& model : models) {
    if (model.name == name) return model;
  }
  std::vector<std::string> names;
  for (const LibraryModelKeys& model : models) names.push_back(model.name);
  refuse_library(path, {fmt::format("it has no model \"{}\"", name), fmt::format("it has {}", join(names, ", "))});
}

std::string describe(const std::vector<LibraryModelKeys>& models) {
  Json list = Json::array();
  for (const LibraryModelKeys& model : models) {
    if (!is_name(model.name)) {
      throw UsageError(fmt::format("\"{}\" cannot be the name of a model", model.name),
                       "names are of small letters, digits and _");
    }
    Json keys = Json::array();
    for (const LibraryKey& key : model.keys) {
      const auto fail = [&](const char* problem) {
        throw UsageError(fmt::format("the key {} of the model {} {}", key.name, model.name, problem));
      };
      if (!is_name(key.name)) fail("has a name that is not of small letters, digits and _");
      const auto* whole = std::get_if<int64_t>(&key.value);
      const auto* number = std::get_if<double>(&key.value);
      const auto* text = std::get_if<std::string>(&key.value);
      const double value = whole ? static_cast<double>(*whole) : number ? *number : 0;
      if ((whole || number) && (value < key.least || value > key.most)) fail("has a default outside its range");
      if (text && !key.names.empty() && std::count(key.names.begin(), key.names.end(), *text) == 0) {
        fail("has a default that is none of its names");
      }
      keys.push_back({{"name", key.name},
                      {"value", json_of(key.value)},
                      {"meaning", key.meaning},
                      {"least", key.least},
                      {"most", key.most},
                      {"names", key.names}});
    }
    list.push_back({{"name", model.name},
                    {"meaning", model.meaning},
                    {"samples", static_cast<int>(model.samples)},
                    {"keys", keys}});
  }
  return list.dump();
}

std::shared_ptr<const ModelLibraryKeys> read_model_library(const std::string& given) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const ModelLibraryKeys>> known;
  const std::string path = std::filesystem::absolute(given).lexically_normal().string();
  const std::string version = version_of(path);
  const std::lock_guard lock(mutex);
  std::shared_ptr<const ModelLibraryKeys>& library = known[path + version];
  if (library) return library;
  std::optional<std::vector<LibraryModelKeys>> models = kept(path, version);
  if (!models) {
    const Json json = Json::parse(ask(path));
    models = models_from(json);
    try {
      replace_file(path + ".json",
                   Json({{"library", version}, {"for", library_stamp()}, {"models", json}}).dump(2) + "\n");
    } catch (const SystemError&) {  // a read-only folder: asked again next time
    }
  }
  return library = std::make_shared<const ModelLibraryKeys>(ModelLibraryKeys{path, std::move(*models)});
}

}  // namespace trireme
