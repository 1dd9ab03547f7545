// Text from one file or a folder of them: bytes as tokens, or byte-pair tokens.
#pragma once

#include <filesystem>
#include <vector>

#include "trireme/data/text/bpe.h"
#include "trireme/data/tokens.h"

namespace trireme {

struct TextFiles {
  std::vector<TokenPiece> pieces;  ///< one a file, in order of the names; nothing is put between files
  int64_t num_files = 0;
  int64_t num_bytes = 0;
};

/// Without a tokenizer the files stay where `cache` says; with one their tokens are in memory. Empty files are allowed
/// as long as one is not. Throws SystemError or UsageError naming the file.
TextFiles open_text(const std::filesystem::path& path, FileCache cache, const Bpe* tokenizer);

}  // namespace trireme
