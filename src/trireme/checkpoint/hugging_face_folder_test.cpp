// The files next to exported weights: always those of these weights, and nothing that was there is lost.
#include "trireme/checkpoint/hugging_face_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/base/file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class HuggingFaceFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "trireme-folder-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    model_.kind = ModelKind::kGpt2;
    model_.layers = 3;
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const fs::path& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }
  std::string read(const fs::path& name) const { return read_whole_file(folder_ / name, 1 << 20); }

  fs::path folder_;
  ModelConfig model_;
};

TEST_F(HuggingFaceFolderTest, AnotherModelsConfigGivesWay) {
  write("config.json", "{\"n_layer\": 77}");
  const HuggingFaceFolder written = write_hugging_face_folder(folder_, model_, "");
  ASSERT_EQ(written.files.size(), 1u);
  EXPECT_EQ(nlohmann::json::parse(read("config.json")).at("n_layer"), 3);
  EXPECT_EQ(written.files[0].old, folder_ / "config.json.old");
  EXPECT_EQ(read("config.json.old"), "{\"n_layer\": 77}");
  // The same again changes nothing; another one keeps both.
  EXPECT_EQ(write_hugging_face_folder(folder_, model_, "").files[0].old, "");
  model_.layers = 4;
  EXPECT_EQ(write_hugging_face_folder(folder_, model_, "").files[0].old, folder_ / "config.json.old-2");
  EXPECT_EQ(nlohmann::json::parse(read("config.json")).at("n_layer"), 4);
}

TEST_F(HuggingFaceFolderTest, TheTokenizerComesAlong) {
  write("words/vocab.json", "{}");
  write("words/merges.txt", "#version");
  write("words/notes.md", "not a tokenizer's");
  write_hugging_face_folder(folder_, model_, folder_ / "words");
  EXPECT_EQ(read("vocab.json"), "{}");
  EXPECT_EQ(read("merges.txt"), "#version");
  EXPECT_FALSE(fs::exists(folder_ / "notes.md"));
  EXPECT_EQ(nlohmann::json::parse(read("tokenizer_config.json")).at("tokenizer_class"), "GPT2Tokenizer");

  // One file, under any name; its own description is kept.
  write("my-bpe.json", "{\"model\": 1}");
  fs::create_directory(folder_ / "out");
  write_hugging_face_folder(folder_ / "out", model_, folder_ / "my-bpe.json");
  EXPECT_EQ(read("out/tokenizer.json"), "{\"model\": 1}");
  EXPECT_FALSE(fs::exists(folder_ / "out" / "vocab.json"));
  EXPECT_EQ(nlohmann::json::parse(read("out/tokenizer_config.json")).at("tokenizer_class"), "PreTrainedTokenizerFast");
  write("hub/tokenizer.json", "{}");
  write("hub/tokenizer_config.json", "{\"own\": 1}");
  write_hugging_face_folder(folder_ / "out", model_, folder_ / "hub" / "tokenizer.json");
  EXPECT_EQ(read("out/tokenizer_config.json"), "{\"own\": 1}");
}

TEST_F(HuggingFaceFolderTest, AMissingTokenizerIsTold) {
  const HuggingFaceFolder written = write_hugging_face_folder(folder_, model_, folder_ / "gone.json");
  EXPECT_NE(written.warning.find("gone.json"), std::string::npos);
  EXPECT_EQ(written.files.size(), 1u);
}

}  // namespace
}  // namespace trireme
