// What the tests of this folder share: a folder that goes away, tensors, and small checkpoints.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "trireme/base/fault.h"
#include "trireme/base/file.h"
#include "trireme/base/philox.h"
#include "trireme/checkpoint/folder.h"
#include "trireme/checkpoint/reader.h"
#include "trireme/checkpoint/save.h"
#include "trireme/checkpoint/tensor_view.h"

namespace trireme {

/// In memory where there is such a place: thousands of syncs would take a disk minutes.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;
    const std::filesystem::path parent = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (parent / "checkpoint-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Neither faults nor watchers outlive a test.
class CheckpointTest : public testing::Test {
 protected:
  void TearDown() override {
    set_faults("");
    set_file_observer({});
    set_pretended_space(std::nullopt);
  }
  const std::filesystem::path& root() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

inline std::string read_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

inline void write_text(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

/// Numbers that depend on the seed and the name.
inline OwnedTensor make_tensor(const std::string& name, std::vector<int64_t> shape, uint64_t seed = 1,
                               DataType type = DataType::kFloat) {
  OwnedTensor tensor{{name, type, std::move(shape)}, {}};
  tensor.bytes.resize(tensor.info.num_bytes());
  const Philox random(seed, name);
  for (size_t i = 0; i < tensor.bytes.size(); ++i)
    tensor.bytes[i] = static_cast<std::byte>(random(i / 16)[i / 4 % 4] >> (i % 4 * 8));
  return tensor;
}

/// A small model, different for each step.
inline std::vector<OwnedTensor> small_model(uint64_t step) {
  return {make_tensor("embedding", {8, 6}, step), make_tensor("layers.0.weight", {5, 7}, step),
          make_tensor("layers.0.bias", {5}, step, DataType::kBFloat16),
          make_tensor("count", {}, step, DataType::kInt64)};
}

inline std::vector<ShardTensor> as_shard(const std::vector<OwnedTensor>& tensors) {
  std::vector<ShardTensor> shard;
  for (const OwnedTensor& tensor : tensors) {
    shard.push_back({tensor.view(), "weights", 0, std::nullopt});
  }
  return shard;
}

inline const std::string kMeta = R"({"data": {"position": 18446744073709551615}, "scale": 0.1})";

inline PendingCheckpoint::Result save_step(const std::filesystem::path& root, uint64_t step, int keep = 0) {
  const std::vector<OwnedTensor> model = small_model(step);
  return save_checkpoint(root, step, as_shard(model), kMeta, keep);
}

/// The checkpoint holds exactly what small_model(step) is.
inline void expect_step(const std::filesystem::path& path, uint64_t step) {
  const CheckpointReader reader = CheckpointReader::open(path);
  EXPECT_EQ(reader.step(), step);
  EXPECT_EQ(reader.meta(), kMeta);
  const std::vector<OwnedTensor> model = small_model(step);
  EXPECT_EQ(reader.tensors().size(), model.size());
  for (const OwnedTensor& tensor : model) {
    ASSERT_EQ(reader.tensor(tensor.info.name), tensor.info);
    std::vector<std::byte> bytes(tensor.bytes.size());
    reader.read(tensor.info.name, bytes);
    EXPECT_EQ(bytes, tensor.bytes) << tensor.info.name;
  }
}

/// What the call throws, or "".
template <typename Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

}  // namespace trireme
