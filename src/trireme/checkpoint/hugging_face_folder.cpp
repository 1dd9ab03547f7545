#include "trireme/checkpoint/hugging_face_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <map>
#include <string_view>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/checkpoint/hugging_face.h"
#include "trireme/observe/append_file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostSideBytes = uint64_t{1} << 28;  // of a file that says how words become tokens
constexpr std::string_view kTokenizerFiles[] = {
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",     "tokenizer.model"};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

/// Name in the folder to contents; empty where there is no such tokenizer.
std::map<std::string, std::string> tokenizer_files(const fs::path& tokenizer) {
  std::map<std::string, std::string> files;
  std::error_code ignored;
  const bool is_folder = fs::is_directory(tokenizer, ignored);
  const fs::path folder = is_folder ? tokenizer : tokenizer.parent_path();
  if (!is_folder && is_there(tokenizer)) files["tokenizer.json"] = read_whole_file(tokenizer, kMostSideBytes);
  if (!is_folder && files.empty()) return files;
  for (const std::string_view name : kTokenizerFiles) {
    // A file that is named alone may lie among others' files.
    const bool belongs = is_folder || (name != "tokenizer.json" && tokenizer.filename() == "tokenizer.json");
    if (belongs && is_there(folder / name)) files[std::string(name)] = read_whole_file(folder / name, kMostSideBytes);
  }
  // Without it transformers takes the class of the model's kind, which may be another.
  if (!files.empty() && !files.contains("tokenizer_config.json")) {
    const bool is_fast = files.contains("tokenizer.json");
    files["tokenizer_config.json"] =
        fmt::format("{{\"tokenizer_class\": \"{}\"}}\n", is_fast ? "PreTrainedTokenizerFast" : "GPT2Tokenizer");
  }
  return files;
}

FolderFile put(const fs::path& path, const std::string& contents) {
  FolderFile file{path, {}};
  std::error_code failed;
  if (is_there(path)) {
    if (fs::file_size(path, failed) == contents.size() && read_whole_file(path, kMostSideBytes) == contents)
      return file;
    file.old = path.string() + ".old";
    for (int number = 2; is_there(file.old); ++number) file.old = fmt::format("{}.old-{}", path.string(), number);
    fs::rename(path, file.old, failed);
    if (failed) throw SystemError(fmt::format("rename {} to {}", path.string(), file.old.string()), failed.value());
  }
  replace_file(path, contents);
  return file;
}

}  // namespace

HuggingFaceFolder write_hugging_face_folder(const fs::path& folder, const ModelConfig& model,
                                            const fs::path& tokenizer) {
  HuggingFaceFolder written;
  written.files.push_back(put(folder / "config.json", hugging_face_config(model, DataType::kFloat)));
  if (tokenizer.empty()) return written;
  const auto files = tokenizer_files(tokenizer);
  for (const auto& [name, contents] : files) written.files.push_back(put(folder / name, contents));
  if (files.empty()) {
    written.warning = fmt::format(
        "the run's tokenizer {} is not there, so its files are not next to the weights; a relative path counts from "
        "the folder where training was started",
        tokenizer.string());
  }
  return written;
}

}  // namespace trireme
