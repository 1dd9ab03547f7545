#include "trireme/data/text/text_files.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

TextFiles open_text(const std::filesystem::path& path, FileCache cache, const Bpe* tokenizer) {
  TextFiles text;
  for (const auto& name : files_under(path)) {
    const auto file = FileBytes::open(name, cache);
    ++text.num_files;
    text.num_bytes += static_cast<int64_t>(file->bytes().size());
    text.pieces.push_back(tokenizer != nullptr ? TokenPiece::of_ids(tokenizer->encode(file->text()))
                                               : TokenPiece::of_bytes(file));
  }
  if (text.num_bytes == 0) {
    throw UsageError(fmt::format("{} holds no text: {} of 0 bytes", path.string(),
                                 text.num_files == 1 ? "a file" : fmt::format("{} files", text.num_files)),
                     "check data.path");
  }
  return text;
}

}  // namespace trireme
