// From options to datasets: what "auto" sees, what is held out, and what is refused.
#include "trireme/data/open_data.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "trireme/base/fault.h"
#include "trireme/config/value.h"
#include "trireme/data/data_test_util.h"
#include "trireme/data/sample_stream.h"

namespace trireme {
namespace {

class OpenDataTest : public DataTest {
 protected:
  DataOptions at(const std::filesystem::path& path) const {
    DataOptions options;
    options.path = path;
    options.seq = 8;
    return options;
  }
  static std::string refusal(const DataOptions& options) {
    return message_of([&] { open_data(options); });
  }
  /// What the key says to a name that is none of its values.
  static std::string refusal(std::string_view key, const std::string& name) {
    Config config;
    return message_of([&] { set_key(config, key, name, "test"); });
  }
};

std::string all_tokens(const Dataset& data) {
  std::string text;
  const SampleStream stream(std::shared_ptr<const Dataset>(&data, [](const Dataset*) {}), 0, SampleOrder::kAsStored);
  const Batch all = stream.read(0, data.size());
  for (const int64_t token : all.input<int64_t>()) text += static_cast<char>(token);
  return text;
}

TEST_F(OpenDataTest, WithoutAPathTextIsGenerated) {
  DataOptions options;
  options.seed = 5;
  const OpenedData data = open_data(options);
  EXPECT_TRUE(data.is_generated_text);
  EXPECT_EQ(data.generated.seed, 5u);
  EXPECT_EQ(data.vocab, 256);
  EXPECT_EQ(data.train->shape(), SampleShape::language(128));
  expect_says(data.description, {"generated text", "seed 5", "samples"});
  options.channels = 1;
  const OpenedData images = open_data(options);
  EXPECT_EQ(images.train->shape(), SampleShape::image(1, 28, 28));
  EXPECT_EQ(images.vocab, 10);
  options.channels = 0;
  options.vocab = 100;
  expect_says(refusal(options), {"256 ids", "model.vocab = 100", "set model.vocab = 256"});
}

TEST_F(OpenDataTest, TextOfAFolderComesInOrderOfNames) {
  write("text/b/two.txt", "klmnopqrstuvwxyz");
  write("text/a.txt", "abcdefghij");
  write("text/c.txt", "ABCDEFGHI");
  for (const FileCache cache : {FileCache::kMap, FileCache::kMemory}) {
    DataOptions options = at(folder_ / "text");
    options.cache = cache;
    options.held_out = 0.25;
    options.split = HoldOut::kEnd;
    const OpenedData data = open_data(options);
    EXPECT_EQ(all_tokens(*data.train), "abcdefghijklmnopqrstuvwx");
    EXPECT_EQ(all_tokens(*data.held_out), "yzABCDEF");
    EXPECT_EQ(data.vocab, 256);
    expect_says(data.description, {"3 files", "35 B", "byte by byte", "3 samples, 1 held out"});
    options.held_out = 0;
    EXPECT_EQ(open_data(options).held_out, nullptr);
  }
}

TEST_F(OpenDataTest, PatternsAndLists) {
  write("p/b.txt", "klmnopqr");
  write("p/a.txt", "abcdefghij");
  write("p/c.md", "ABCDEFGHIJ");
  const auto text_of = [&](const std::string& path) {
    DataOptions options = at(path);
    options.held_out = 0;
    return all_tokens(*open_data(options).train);
  };
  const std::string p = (folder_ / "p").string();
  EXPECT_EQ(text_of(p + "/*.txt"), "abcdefghijklmnop");
  EXPECT_EQ(text_of(p + "/c.md," + p + "/a.txt"), "ABCDEFGHIJabcdef");
  expect_says(refusal(at(p + "/*.tex")), {"no file matches the pattern", "*.tex", "data.path"});
  expect_says(refusal(at(p + "/a.txt," + p + "/x.txt")), {"x.txt", "No such file"});
  expect_says(refusal(at(p + "/a.txt,")), {"an empty name"});
  // A file of this very name is a file.
  write("p/x[1],y.txt", "0123456789");
  EXPECT_EQ(text_of(p + "/x[1],y.txt"), "01234567");
  std::string tokens;
  for (int i = 0; i < 100; ++i) tokens += {static_cast<char>(i), '\1'};
  write("t/one.bin", tokens);
  write("t/val.bin", tokens);
  EXPECT_EQ(open_data(at(folder_ / "t/*.bin")).held_out->size(), 12);
}

TEST_F(OpenDataTest, TokenFilesAndTheirHeldOutOnes) {
  std::string tokens;
  for (int i = 0; i < 100; ++i) tokens += {static_cast<char>(i), '\1'};
  write("one.bin", tokens);
  OpenedData data = open_data(at(folder_ / "one.bin"));
  EXPECT_EQ(data.vocab, 256 + 100);
  EXPECT_EQ(data.train->size() + data.held_out->size(), 12);
  expect_says(data.description, {"100 tokens, all checked, largest id 355"});
  write("two/train.bin", tokens);
  write("two/val.bin", tokens.substr(0, 50));
  data = open_data(at(folder_ / "two"));
  EXPECT_EQ(data.train->size(), 12);
  EXPECT_EQ(data.held_out->size(), 3);
  DataOptions options = at(folder_ / "two");
  options.vocab = 300;
  expect_says(refusal(options), {"train.bin: token 44 is id 300", "at least 356"});
  write("two/readme.txt", "hello");
  expect_says(refusal(at(folder_ / "two")), {"readme.txt", "say what is meant"});
  options.vocab = 400;
  options.kind = DataKind::kTokens;
  EXPECT_EQ(refusal(options), "accepted");
}

TEST_F(OpenDataTest, ImageFolders) {
  std::string record(3073, '\1');
  write("c/data_batch_1.bin", record + record + record + record);
  OpenedData data = open_data(at(folder_ / "c"));
  EXPECT_EQ(data.train->size(), 3);
  EXPECT_EQ(data.held_out->size(), 1);
  // Records in the order of their classes, as folders of images come: all are held out somewhere.
  std::string ordered;
  for (int i = 0; i < 100; ++i) ordered += std::string(1, static_cast<char>(i / 10)) + std::string(3072, '\1');
  write("o/data_batch_1.bin", ordered);
  DataOptions half = at(folder_ / "o");
  half.held_out = 0.5;
  data = open_data(half);
  Batch batch(data.held_out->shape(), 50);
  for (int64_t i = 0; i < 50; ++i) data.held_out->read(i, batch, i);
  EXPECT_EQ(std::set<int64_t>(batch.target<int64_t>().begin(), batch.target<int64_t>().end()).size(), 10u);
  write("c/test_batch.bin", record);
  data = open_data(at(folder_ / "c"));
  EXPECT_EQ(data.train->size(), 4);
  expect_says(data.description, {"CIFAR-10", "3 × 32 × 32", "4 samples, 1 held out"});
  DataOptions options = at(folder_ / "c");
  options.channels = 1;
  expect_says(refusal(options), {"channels = 3", "expects 1", "set model.channels = 3"});
  options.channels = 3;
  options.height = 28;
  expect_says(refusal(options), {"height = 32", "set model.image = 32"});
  options.height = 32;
  options.vocab = 5;
  expect_says(refusal(options), {"10 classes", "model.classes = 5"});
  write("t/a.txt", "text");
  options = at(folder_ / "t");
  options.kind = DataKind::kImages;
  expect_says(refusal(options), {"holds no images", "MNIST"});
}

TEST_F(OpenDataTest, WhatCannotBeIsRefused) {
  DataOptions options = at(folder_ / "absent");
  expect_says(refusal(options), {"absent", "No such file", "data.path"});
  expect_says(refusal("data.kind", "tekst"), {"data.kind = \"tekst\"", "did you mean \"text\"?"});
  options = at("");
  options.kind = DataKind::kTokens;
  expect_says(refusal(options), {"needs data.path"});
  write("e/empty.txt", "");
  expect_says(refusal(at(folder_ / "e")), {"holds no text", "a file of 0 bytes"});
  std::filesystem::create_directory(folder_ / "nothing");
  expect_says(refusal(at(folder_ / "nothing")), {"holds no files"});
  write("s/short.txt", "0123456789");
  expect_says(refusal(at(folder_ / "s")), {"has 10 tokens, but 17 are needed"});
  options = at(folder_ / "s");
  expect_says(refusal("data.cache", "ram"), {"data.cache = \"ram\"", "mmap, memory"});
  expect_says(refusal("data.split", "middle"), {"data.split = \"middle\"", "random, end"});
  options.held_out = 1;
  expect_says(refusal(options), {"data.held_out = 1"});
  options.held_out = 0;
  EXPECT_EQ(refusal(options), "accepted");
  options.tokenizer = folder_ / "no-tokenizer";
  expect_says(refusal(options), {"no-tokenizer", "data.tokenizer"});
  options.path.clear();
  expect_says(refusal(options), {"no-tokenizer", "is for text", "generated", "data.path"});
  std::filesystem::create_directory_symlink(folder_ / "e", folder_ / "s" / "link");
  expect_says(refusal(at(folder_ / "s")), {"link", "not followed"});
  ASSERT_EQ(mkfifo((folder_ / "e" / "pipe").c_str(), 0600), 0);
  expect_says(refusal(at(folder_ / "e")), {"pipe", "neither a file nor a folder"});
  options = at(folder_ / "e" / "pipe");
  options.kind = DataKind::kTokens;
  expect_says(refusal(options), {"pipe is a device, not a file"});
}

TEST_F(OpenDataTest, FailingSystemCallsAreNamed) {
  write("a.txt", "0123456789012345678901234567890");
  DataOptions options = at(folder_ / "a.txt");
  options.cache = FileCache::kMemory;
  set_faults("point=data.file.read,kind=errno:EIO");
  expect_says(refusal(options), {"read", "a.txt"});
  set_faults("point=data.file.open,kind=errno:EACCES");
  expect_says(refusal(options), {"open", "a.txt", "chmod"});
  set_faults("");
  EXPECT_EQ(refusal(options), "accepted");
}

}  // namespace
}  // namespace trireme
