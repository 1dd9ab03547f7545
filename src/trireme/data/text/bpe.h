// Byte-pair tokens as GPT-2 makes them, from a vocabulary and merges that were learnt elsewhere.
//
// Text is cut into words (pretokenize.h); within a word the pair of neighbours whose merge was learnt first is joined,
// again and again. Each of the 256 bytes has a token, so any bytes can be encoded and come back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

/// Immutable. Threads: all; an encode keeps its cache of words to itself.
class Bpe {
 public:
  struct Token {
    std::string bytes;
    int32_t id;
    bool is_special = false;  ///< matched as a whole before words are cut, such as <|endoftext|>
  };
  using Merge = std::pair<std::string, std::string>;  ///< the bytes left and right, in order of rank

  /// `path` is a tokenizer.json of Hugging Face, or a folder with one, or a folder with GPT-2's vocab.json and
  /// merges.txt. Throws SystemError where it cannot be read, UsageError naming file, place and value.
  static Bpe load(const std::filesystem::path& path);
  /// From memory; `name` is used in messages.
  static Bpe from_tokenizer_json(std::string_view text, const std::string& name);
  static Bpe from_vocab_and_merges(std::string_view vocab_json, const std::string& vocab_name, std::string_view merges,
                                   const std::string& merges_name);
  /// Throws UsageError for an id or token that is there twice, a byte without a token, a merge of unknown tokens.
  Bpe(std::vector<Token> tokens, const std::vector<Merge>& merges, const std::string& name);

  int64_t vocab_size() const;  ///< the largest id + 1
  std::vector<int32_t> encode(std::string_view text) const;
  /// Throws UsageError for an id without a token.
  std::string decode(std::span<const int32_t> ids) const;

 private:
  struct Tables;
  std::shared_ptr<const Tables> tables_;
};

}  // namespace trireme
