// A crash after each system call of a save, with what was not synced dropped: the last committed step always loads.
//
// The calls of a save are recorded once. For each beginning of that record, and for many ways in which a disk may have
// lost what nobody asked it to keep, the folder is made as it would be found after the crash.
#include <algorithm>
#include <map>
#include <memory>

#include "trireme/checkpoint/checkpoint_test_util.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// A file or folder with what is on the disk for certain, and what the kernel would like to be there.
struct Node {
  bool is_folder = false;
  std::string synced, current;  // of a file
  std::map<std::string, std::shared_ptr<Node>> entries;
  std::vector<std::map<std::string, std::shared_ptr<Node>>> versions;  // of entries: the synced one, then each change
};
using NodePtr = std::shared_ptr<Node>;

class PretendedDisk {
 public:
  explicit PretendedDisk(fs::path root) : root_(std::move(root)), top_(load(root_)) {}

  void apply(const FileEvent& event) {
    const fs::path path = event.path.lexically_relative(root_);
    switch (event.kind) {
      case FileEvent::Kind::kCreate:
        return add(path, std::make_shared<Node>());
      case FileEvent::Kind::kMakeFolder: {
        auto folder = std::make_shared<Node>();
        folder->is_folder = true;
        folder->versions = {{}};
        return add(path, folder);
      }
      case FileEvent::Kind::kWrite: {
        std::string& text = find(path)->current;
        text.resize(std::max<size_t>(text.size(), event.offset + event.bytes.size()));
        text.replace(event.offset, event.bytes.size(), event.bytes);
        return;
      }
      case FileEvent::Kind::kSync:
        find(path)->synced = find(path)->current;
        return;
      case FileEvent::Kind::kSyncFolder:
        find(path)->versions = {find(path)->entries};
        return;
      case FileEvent::Kind::kRename: {
        Node& parent = *find(path.parent_path());
        const NodePtr moved = parent.entries.at(path.filename());
        parent.entries.erase(path.filename());
        parent.entries[event.target.filename()] = moved;
        parent.versions.push_back(parent.entries);
        return;
      }
      case FileEvent::Kind::kExchange: {
        Node& parent = *find(path.parent_path());
        std::swap(parent.entries.at(path.filename()), parent.entries.at(event.target.filename()));
        parent.versions.push_back(parent.entries);
        return;
      }
      case FileEvent::Kind::kRemove: {
        Node& parent = *find(path.parent_path());
        parent.entries.erase(path.filename());
        parent.versions.push_back(parent.entries);
        return;
      }
    }
  }

  /// The folder as it is after a crash. `mercy` decides what the disk has kept without being asked.
  enum class Mercy { kNone, kAll, kNamesOnly, kRandom };
  void write_to(const fs::path& folder, Mercy mercy, const Philox& random) const {
    uint64_t draw = 0;
    write(*top_, folder, mercy, random, draw);
  }

 private:
  static NodePtr load(const fs::path& path) {
    auto node = std::make_shared<Node>();
    node->is_folder = fs::is_directory(path);
    if (!node->is_folder) {
      node->synced = node->current = read_text(path);
      return node;
    }
    for (const auto& entry : fs::directory_iterator(path)) node->entries[entry.path().filename()] = load(entry.path());
    node->versions = {node->entries};
    return node;
  }

  NodePtr find(const fs::path& path) const {
    NodePtr node = top_;
    for (const fs::path& name : path) {
      if (name != "." && !name.empty()) node = node->entries.at(name);
    }
    return node;
  }

  void add(const fs::path& path, const NodePtr& node) {
    Node& parent = *find(path.parent_path());
    parent.entries[path.filename()] = node;
    parent.versions.push_back(parent.entries);
  }

  static std::string contents(const Node& file, Mercy mercy, const Philox& random, uint64_t& draw) {
    if (mercy == Mercy::kAll) return file.current;
    if (mercy == Mercy::kNone || file.current == file.synced) return file.synced;
    if (mercy == Mercy::kNamesOnly) return std::string(file.current.size(), '\0');  // the size, but not the data
    std::string text = file.current.substr(0, random.below(file.current.size() + 1, draw++));
    if (random.below(2, draw++) == 1) text.resize(file.current.size());
    return text;
  }

  static void write(const Node& node, const fs::path& path, Mercy mercy, const Philox& random, uint64_t& draw) {
    if (!node.is_folder) return write_text(path, contents(node, mercy, random, draw));
    fs::create_directories(path);
    size_t version = mercy == Mercy::kNone ? 0 : node.versions.size() - 1;
    if (mercy == Mercy::kRandom) version = random.below(node.versions.size(), draw++);
    for (const auto& [name, child] : node.versions[version]) write(*child, path / name, mercy, random, draw);
  }

  fs::path root_;
  NodePtr top_;
};

using Crash = CheckpointTest;
using Mercy = PretendedDisk::Mercy;

/// Saves `step` over what `root` holds; crashes in all ways; `before` is the step that was committed.
void crash_everywhere(const fs::path& root, uint64_t before, uint64_t step, int keep, const fs::path& scratch) {
  const PretendedDisk start(root);
  std::vector<FileEvent> events;
  set_file_observer([&](const FileEvent& event) { events.push_back(event); });
  save_step(root, step, keep);
  set_file_observer({});
  ASSERT_GT(events.size(), 15U);
  PretendedDisk disk = start;
  uint64_t trial = 0;
  for (size_t done = 0; done <= events.size(); ++done) {
    for (int way = 0; way < 24; ++way) {
      const Mercy mercy = way < 3 ? static_cast<Mercy>(way) : Mercy::kRandom;
      const fs::path folder = scratch / "found";
      fs::remove_all(folder);
      disk.write_to(folder, mercy, Philox(17, "crash", ++trial));
      const Finding finding = find_newest(folder);
      ASSERT_TRUE(finding.newest) << "after call " << done << ", way " << way;
      ASSERT_TRUE(finding.damaged.empty()) << finding.damaged.front().damage.text();
      const uint64_t found = finding.newest->step;
      ASSERT_TRUE(found == before || found == step);
      if (done == events.size()) {
        ASSERT_EQ(found, step) << "a committed step is lost";
      }
      expect_step(finding.newest->path, found);
      save_step(folder, step + 1, 1);
      ASSERT_EQ(std::distance(fs::directory_iterator(folder), {}), 2) << "a leftover stays";
      expect_step(folder / step_name(step + 1), step + 1);
    }
    if (done < events.size()) disk.apply(events[done]);
  }
}

TEST_F(Crash, TheFirstReplacedByTheSecond) {
  save_step(root() / "run", 1);
  crash_everywhere(root() / "run", 1, 2, 1, root());
}

TEST_F(Crash, WithLeftoversAndSeveralToRemove) {
  for (const uint64_t step : {1, 2, 3}) save_step(root() / "run", step);
  fs::create_directories(root() / "run" / "step-000009.tmp-dead");
  write_text(root() / "run" / "step-000009.tmp-dead" / "manifest.json", "{");
  crash_everywhere(root() / "run", 3, 4, 2, root());
}

TEST_F(Crash, TheSameStepSavedAgain) {
  save_step(root() / "run", 5);
  crash_everywhere(root() / "run", 5, 5, 1, root());
}

}  // namespace
}  // namespace trireme
