// safetensors: what is written comes back, what is not as it must be is refused with its byte, and nothing crashes.
#include "trireme/checkpoint/safetensors.h"

#include <fmt/format.h>

#include "trireme/base/json.h"
#include "trireme/checkpoint/checkpoint_test_util.h"

namespace trireme {
namespace {

using Safetensors = CheckpointTest;

std::string file_of(const std::string& header, size_t data_bytes) {
  uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + header + std::string(data_bytes, 'x');
}

std::string refusal(const std::string& file) {
  return message_of([&] { parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "f.safetensors"); });
}

TEST_F(Safetensors, EverythingComesBack) {
  const Philox random(3, "shapes");
  for (uint64_t trial = 0; trial < 40; ++trial) {
    std::vector<OwnedTensor> tensors;
    const uint64_t n = random.below(12, trial * 100);
    for (uint64_t i = 0; i < n; ++i) {
      std::vector<int64_t> shape(random.below(4, trial * 100 + i * 5 + 1));
      for (size_t dim = 0; dim < shape.size(); ++dim) {
        shape[dim] = static_cast<int64_t>(random.below(9, trial * 1000 + i * 10 + dim));
      }
      const auto type = static_cast<DataType>(random.below(7, trial * 100 + i * 5 + 2));
      tensors.push_back(make_tensor(fmt::format("t\"{}\\ ü\n{}", i, trial), shape, trial, type));
    }
    std::vector<TensorView> views;
    for (const OwnedTensor& tensor : tensors) views.push_back(tensor.view());
    const auto path = root() / "a.safetensors";
    write_safetensors(path, views, {{"format", "pt"}, {"qu\"ote", "line\nend"}});
    const SafetensorsFile file(path);
    ASSERT_EQ(file.tensors().size(), tensors.size());
    EXPECT_EQ(file.metadata().at("qu\"ote"), "line\nend");
    for (const OwnedTensor& tensor : tensors) {
      const TensorView view = file.tensor(tensor.info.name);
      ASSERT_EQ(view.info, tensor.info);
      ASSERT_TRUE(std::equal(view.bytes.begin(), view.bytes.end(), tensor.bytes.begin(), tensor.bytes.end()));
    }
    for (const StoredTensor& tensor : file.tensors()) EXPECT_EQ(tensor.offset % size_of(tensor.info.type), 0U);
    if (!file.tensors().empty()) {
      EXPECT_EQ(file.tensors().front().offset % 64, 0U);
    }
  }
}

TEST_F(Safetensors, AnotherJsonParserReadsTheHeader) {
  const OwnedTensor tensor = make_tensor("a\tb", {2, 3});
  write_safetensors(root() / "a", std::vector{tensor.view()}, {{"k", "v"}});
  const std::string text = read_text(root() / "a");
  uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  const auto json = nlohmann::json::parse(text.substr(8, length));
  EXPECT_EQ(json.at("a\tb").at("dtype"), "F32");
  EXPECT_EQ(json.at("a\tb").at("shape"), (std::vector<int>{2, 3}));
  EXPECT_EQ(json.at("a\tb").at("data_offsets"), (std::vector<int>{0, 24}));
  EXPECT_EQ(json.at("__metadata__").at("k"), "v");
  EXPECT_EQ(text.size(), 8 + length + 24);
}

TEST_F(Safetensors, BoolIsReadAsBytes) {
  write_text(root() / "b", file_of(R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3));
  EXPECT_EQ(SafetensorsFile(root() / "b").tensor("m").info.type, DataType::kUInt8);
}

TEST_F(Safetensors, RefusalsNameFileByteAndTensor) {
  const auto one = [](const std::string& type, const std::string& shape, const std::string& offsets) {
    return fmt::format(R"({{"w":{{"dtype":"{}","shape":[{}],"data_offsets":[{}]}}}})", type, shape, offsets);
  };
  EXPECT_EQ(refusal(file_of(one("F32", "2,3", "0,24"), 24)), "");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {std::string("1234567"), "ends before its header"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8), "does not fit"},
      {file_of("", 0), "unexpected end of input"},
      {file_of("[]", 0), "expected {"},
      {file_of("{} x", 0), "expected end of input"},
      {file_of(std::string("{}\0x", 4), 0), "a zero byte"},
      {file_of(one("F32", "2,3", "0,24"), 23), "ends inside tensor w, 1 bytes too early"},
      {file_of(one("F32", "2,3", "0,24"), 25), "byte 89: bytes that belong to no tensor"},
      {file_of(one("F32", "2,3", "4,28"), 28), "leaves a hole"},
      {file_of(one("F32", "2,3", "0,20"), 20), "do not fit the 24 bytes"},
      {file_of(one("F32", "2,3", "24,0"), 24), "do not fit"},
      {file_of(one("F32", "4294967296,4294967296,4294967296", "0,0"), 0), "shape is too large"},
      {file_of(one("F32", "18446744073709551616", "0,0"), 0), "not a whole number"},
      {file_of(one("F32", "-1", "0,0"), 0), "not a whole number"},
      {file_of(one("F32", "1.5", "0,0"), 0), "whole number"},
      {file_of(one("F32", "01", "0,4"), 4), "unexpected number literal"},
      {file_of(one("F8_E4M3", "1", "0,1"), 1), "tensor w: has the type F8_E4M3"},
      {file_of(one("F32", "1", "0,4,5"), 4), "at most 2 numbers"},
      {file_of(R"({"w":{"dtype":"U8","shape":[1]}})", 1), "are needed"},
      {file_of(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1), "unknown key"},
      {file_of(R"({"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1), "given twice"},
      {file_of(
           R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
           2),
       "w is given twice"},
      {file_of(
           R"({"v":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"w":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
           3),
       "tensor w overlaps"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "is not a text"},
      {file_of("{\"\xff\":1}", 0), "ill-formed UTF-8"},
      {file_of(R"({"\ud800":1})", 0), "surrogate"},
  };
  for (const auto& [file, words] : cases) {
    const std::string message = refusal(file);
    EXPECT_TRUE(contains(message, words)) << message << "\nexpected: " << words;
    EXPECT_TRUE(contains(message, "f.safetensors is no good safetensors file: byte ")) << message;
  }
}

TEST_F(Safetensors, WriterRefusesWhatCannotBeRead) {
  const OwnedTensor a = make_tensor("a", {2});
  EXPECT_TRUE(contains(message_of([&] {
                         write_safetensors(root() / "x", std::vector{a.view(), a.view()});
                       }),
                       "tensor a is given twice"));
  TensorView wrong = a.view();
  wrong.bytes = wrong.bytes.first(4);
  EXPECT_TRUE(contains(message_of([&] { write_safetensors(root() / "x", std::vector{wrong}); }), "has 4 bytes"));
  const OwnedTensor bad = make_tensor("\xff", {2});
  EXPECT_TRUE(contains(message_of([&] { write_safetensors(root() / "x", std::vector{bad.view()}); }), "not UTF-8"));
  EXPECT_TRUE(std::filesystem::is_empty(root()));
}

TEST_F(Safetensors, NearestNameIsOffered) {
  const OwnedTensor a = make_tensor("layers.0.weight", {2});
  write_safetensors(root() / "x", std::vector{a.view()});
  EXPECT_TRUE(contains(message_of([&] { SafetensorsFile(root() / "x").tensor("layer.0.weight"); }),
                       "did you mean layers.0.weight?"));
}

TEST_F(Safetensors, AFailedWriteLeavesTheOldFile) {
  const OwnedTensor a = make_tensor("a", {2}), b = make_tensor("b", {200});
  write_safetensors(root() / "x", std::vector{a.view()});
  set_pretended_space(100);
  EXPECT_TRUE(contains(message_of([&] { write_safetensors(root() / "x", std::vector{b.view()}); }), "No space left"));
  EXPECT_TRUE(SafetensorsFile(root() / "x").has("a"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root()), {}), 1);
}

TEST_F(Safetensors, FuzzedHeadersNeverCrashAndNeverLie) {
  const std::string good = file_of(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"U8","shape":[],"data_offsets":[24,25]}})",
      25);
  const std::string words[] = {"{",  "}",   "[",   "]", ",", ":", "\"", "\\u00e4", "18446744073709551615",
                               "-1", "1e9", "null"};
  const Philox random(5, "fuzz");
  uint64_t draw = 0;
  for (int trial = 0; trial < 60000; ++trial) {
    std::string text = good;
    for (uint64_t i = 0, n = 1 + random.below(4, draw++); i < n; ++i) {
      const size_t at = random.below(text.size(), draw++);
      switch (random.below(4, draw++)) {
        case 0:
          text[at] = static_cast<char>(random.below(256, draw++));
          break;
        case 1:
          text.erase(at, 1 + random.below(8, draw++));
          break;
        case 2:
          text.insert(at, words[random.below(std::size(words), draw++)]);
          break;
        default:
          text.insert(at, text.substr(random.below(text.size(), draw++), 20));
      }
      if (text.empty()) text = "x";
    }
    try {
      const auto header = parse_safetensors_header(std::as_bytes(std::span(text)), text.size(), "f");
      uint64_t sum = header.num_bytes;
      for (const StoredTensor& tensor : header.tensors) {
        ASSERT_EQ(tensor.offset, sum);
        sum += tensor.info.num_bytes();
      }
      ASSERT_EQ(sum, text.size());
    } catch (const Error&) {
      // A refusal is an answer.
    }
  }
}

TEST_F(Safetensors, DeepAndLongHeadersAreRefusedInTime) {
  EXPECT_TRUE(contains(refusal(file_of(R"({"__metadata__":)" + std::string(5'000'000, '['), 0)), "levels deep"));
  EXPECT_TRUE(
      contains(refusal(file_of(R"({"w":{"dtype":"U8","shape":[)" + std::string(1'000'000, '['), 0)), "levels deep"));
  std::string many = "{";
  for (int i = 0; i < 200'000; ++i) {
    many += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})", i == 0 ? "" : ",", i);
  }
  // A tenth of a second; a search of the names before for each would take minutes.
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  EXPECT_EQ(refusal(file_of(many + "}", 0)), "");
  EXPECT_FALSE(deadline.expired());
}

}  // namespace
}  // namespace trireme
