// Files of tokens that were made elsewhere: those of llm.c with a header, and those of nanoGPT without.
//
//   llm.c     256 little-endian int32: magic, version, number of tokens, zeros; then the tokens
//             magic 20240520, version 1: uint16 tokens · magic 20240801, version 7: uint32 tokens
//   nanoGPT   uint16 tokens, nothing else
#pragma once

#include <filesystem>

#include "trireme/data/tokens.h"

namespace trireme {

struct TokenFile {
  TokenPiece tokens;
  int64_t largest = 0;  ///< id; every token was looked at
  bool has_header = false;
};

/// The tokens of a file that is open. Throws UsageError naming file, place, value and fix: a header that does not match
/// the size, ids of `vocab` or more (0: any are right), no tokens.
TokenFile read_token_file(const std::shared_ptr<const FileBytes>& file, int64_t vocab);
TokenFile open_token_file(const std::filesystem::path& path, FileCache cache, int64_t vocab);

/// Whether the file starts as one of llm.c. False for what cannot be read.
bool looks_like_llmc(const std::filesystem::path& path);

}  // namespace trireme
