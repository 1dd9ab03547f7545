// Reads tokenizer.json, vocab.json and merges.txt. JSON comes as events, not as a tree: memory follows what is kept.
#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/data/bpe.h"
#include "trireme/data/character_class.h"
#include "trireme/data/file_bytes.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kKey = "data.tokenizer";
constexpr const char* kOnlyGpt2 = "only byte-level BPE tokenizers that cut words as GPT-2 does can be used";

/// GPT-2 writes each byte as a printable character: itself where it is one, else 256 and up in order of the bytes.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    of_code_.fill(-1);
    size_t next = 256;
    for (size_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      of_code_[printable ? byte : next++] = static_cast<int16_t>(byte);
    }
  }
  /// Nothing where a character stands for no byte.
  std::optional<std::string> bytes(std::string_view text) const {
    std::string bytes;
    for (size_t at = 0; at < text.size();) {
      const Character c = utf8_at(text, at);
      if (!c.is_valid || c.code_point >= of_code_.size() || of_code_[c.code_point] < 0) return std::nullopt;
      bytes += static_cast<char>(of_code_[c.code_point]);
      at += c.num_bytes;
    }
    return bytes;
  }

 private:
  std::array<int16_t, 256 + 68> of_code_;
};

std::string bytes_of(std::string_view text, const std::string& name, std::string_view what) {
  static const ByteAlphabet alphabet;
  if (auto bytes = alphabet.bytes(text)) return *std::move(bytes);
  throw UsageError(
      fmt::format("{}: {} \"{}\" holds a character that stands for no byte", name, what, text.substr(0, 40)),
      kOnlyGpt2);
}

Bpe::Merge merge_of(std::string_view text, const std::string& name, std::string_view where) {
  const size_t space = text.find(' ');
  if (space == 0 || space == std::string_view::npos || space + 1 == text.size() ||
      text.find(' ', space + 1) != std::string_view::npos) {
    throw UsageError(
        fmt::format("{}: {} is \"{}\", not two tokens with a space between", name, where, text.substr(0, 40)));
  }
  return {bytes_of(text.substr(0, space), name, where), bytes_of(text.substr(space + 1), name, where)};
}

/// Takes from the events of a tokenizer.json (or, started inside the vocabulary, of a vocab.json) what a Bpe needs.
class TokenizerEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  enum class Where { kIgnored, kTop, kRoot, kModel, kVocab, kMerges, kMerge, kAdded, kAddedToken, kWords, kNormalizer };

  TokenizerEvents(std::string name, Where outermost) : name_(std::move(name)), outermost_(outermost) {}

  std::vector<Bpe::Token> tokens;
  std::vector<Bpe::Merge> merges;
  std::vector<Bpe::Token> added;
  std::string model_type, words_type;
  bool saw_merges = false;

  bool null() override { return true; }
  bool boolean(bool value) override {
    const Where where = stack_.empty() ? Where::kTop : stack_.back();
    if (where == Where::kAddedToken) return true;
    const bool unusual = (where == Where::kModel && value && (key_ == "byte_fallback" || key_ == "ignore_merges")) ||
                         (where == Where::kWords && value && key_ == "add_prefix_space") ||
                         (where == Where::kWords && !value && key_ == "use_regex");
    if (unusual) refuse(value ? "true" : "false");
    return true;
  }
  bool number_integer(int64_t value) override { return number(value); }
  bool number_unsigned(uint64_t value) override {
    constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
    return number(static_cast<int64_t>(std::min(value, kMost)));
  }
  bool number_float(double, const std::string& text) override {
    if (!stack_.empty() && stack_.back() == Where::kVocab)
      fail(fmt::format("id {} of token \"{}\" is not whole", text, key_));
    return true;
  }
  bool string(std::string& value) override {
    switch (stack_.empty() ? Where::kTop : stack_.back()) {
      case Where::kModel:
        if (key_ == "type") model_type = value;
        if (!value.empty() && (key_ == "continuing_subword_prefix" || key_ == "end_of_word_suffix")) refuse(value);
        break;
      case Where::kMerges:
        merges.push_back(merge_of(value, name_, fmt::format("merge {}", merges.size())));
        break;
      case Where::kMerge:
        if (pair_.size() == 2) fail(fmt::format("merge {} has more than two tokens", merges.size()));
        pair_.push_back(bytes_of(value, name_, fmt::format("merge {}", merges.size())));
        break;
      case Where::kAddedToken:
        if (key_ == "content") added.back().bytes = value;
        break;
      case Where::kWords:
        if (key_ == "type") words_type = value;
        break;
      case Where::kNormalizer:
        if (key_ == "type") refuse(value);
        break;
      case Where::kVocab:
        fail(fmt::format("the id of token \"{}\" is a text, not a number", key_.substr(0, 40)));
      default:
        break;
    }
    return true;
  }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return start(true); }
  bool start_array(size_t) override { return start(false); }
  bool end_object() override { return end(); }
  bool end_array() override { return end(); }
  bool key(std::string& value) override {
    key_ = value;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) override {
    const std::string_view text = error.what();  // "[json.exception.…] what happened"
    const size_t close = text.find("] ");
    throw UsageError(fmt::format("{} is not JSON, at byte {}: {}", name_, position,
                                 close == text.npos ? text : text.substr(close + 2)),
                     "the file is damaged or cut short: fetch it again");
  }

 private:
  static constexpr size_t kMaxDepth = 64;

  [[noreturn]] void fail(const std::string& problem) const { throw UsageError(fmt::format("{}: {}", name_, problem)); }
  [[noreturn]] void refuse(std::string_view value) const {
    const Where where = stack_.back();
    const char* const part = where == Where::kModel ? "model" : where == Where::kWords ? "pre_tokenizer" : "normalizer";
    throw UsageError(fmt::format("{}: {}.{} = {} is not supported", name_, part, key_, value), kOnlyGpt2);
  }

  bool number(int64_t value) {
    const Where where = stack_.empty() ? Where::kTop : stack_.back();
    const bool is_id = where == Where::kVocab || (where == Where::kAddedToken && key_ == "id");
    if (!is_id) return true;
    if (value < 0 || value > std::numeric_limits<int32_t>::max()) {
      fail(fmt::format("id {} of token \"{}\" is not from 0 to 2^31 - 1", value, key_.substr(0, 40)));
    }
    const auto id = static_cast<int32_t>(value);
    if (where == Where::kAddedToken) {
      added.back().id = id;
    } else {
      tokens.push_back({bytes_of(key_, name_, "token"), id, false});
    }
    return true;
  }

  Where inside(bool is_object) {
    const Where where = stack_.empty() ? Where::kTop : stack_.back();
    if (where == Where::kTop && is_object) return outermost_;
    if (where == Where::kRoot && is_object && key_ == "model") return Where::kModel;
    if (where == Where::kRoot && is_object && key_ == "pre_tokenizer") return Where::kWords;
    if (where == Where::kRoot && is_object && key_ == "normalizer") return Where::kNormalizer;
    if (where == Where::kRoot && !is_object && key_ == "added_tokens") return Where::kAdded;
    if (where == Where::kModel && is_object && key_ == "vocab") return Where::kVocab;
    if (where == Where::kModel && !is_object && key_ == "merges") return Where::kMerges;
    if (where == Where::kMerges && !is_object) return Where::kMerge;
    if (where == Where::kAdded && is_object) return Where::kAddedToken;
    if (where == Where::kTop) {
      throw UsageError(
          fmt::format("{}: the whole is not an object", name_),
          "data.tokenizer names a tokenizer.json of Hugging Face, or a folder with vocab.json and merges.txt");
    }
    if (where == Where::kVocab) fail(fmt::format("the id of token \"{}\" is not a number", key_.substr(0, 40)));
    return Where::kIgnored;
  }
  bool start(bool is_object) {
    if (stack_.size() >= kMaxDepth) fail(fmt::format("nested deeper than {} levels", kMaxDepth));
    const Where where = inside(is_object);
    if (where == Where::kMerges) saw_merges = true;
    if (where == Where::kMerge) pair_.clear();
    if (where == Where::kAddedToken) added.push_back({"", -1, true});
    stack_.push_back(where);
    return true;
  }
  bool end() {
    const Where where = stack_.back();
    stack_.pop_back();
    if (where == Where::kMerge) {
      if (pair_.size() != 2) fail(fmt::format("merge {} has {} tokens, not two", merges.size(), pair_.size()));
      merges.emplace_back(std::move(pair_[0]), std::move(pair_[1]));
    }
    if (where == Where::kAddedToken && (added.back().id < 0 || added.back().bytes.empty())) {
      fail(fmt::format("added_tokens[{}] lacks an id or a content", added.size() - 1));
    }
    return true;
  }

  const std::string name_;
  const Where outermost_;
  std::vector<Where> stack_;
  std::string key_;  ///< the last one read; only asked for where no other can have come between
  std::vector<std::string> pair_;
};

void parse(std::string_view text, TokenizerEvents& events) {
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
}

/// An added token that the vocabulary has as well becomes special there; others come on top.
void merge_added(std::vector<Bpe::Token>& tokens, std::vector<Bpe::Token> added, const std::string& name) {
  std::unordered_map<int32_t, size_t> by_id;
  for (size_t i = 0; i < tokens.size(); ++i) by_id.emplace(tokens[i].id, i);
  for (Bpe::Token& token : added) {
    const auto same = by_id.find(token.id);
    if (same == by_id.end()) {
      by_id.emplace(token.id, tokens.size());
      tokens.push_back(std::move(token));
      continue;
    }
    if (tokens[same->second].bytes != token.bytes) {
      throw UsageError(
          fmt::format("{}: id {} belongs to an added token and to another of the vocabulary", name, token.id),
          "the file is damaged: fetch it again");
    }
    tokens[same->second].is_special = true;
  }
}

}  // namespace

Bpe Bpe::from_tokenizer_json(std::string_view text, const std::string& name) {
  TokenizerEvents events(name, TokenizerEvents::Where::kRoot);
  parse(text, events);
  if (events.model_type != "BPE") {
    throw UsageError(fmt::format("{}: model.type is \"{}\", not \"BPE\"", name, events.model_type), kOnlyGpt2);
  }
  if (events.words_type != "ByteLevel") {
    throw UsageError(fmt::format("{}: pre_tokenizer.type is \"{}\", not \"ByteLevel\"", name, events.words_type),
                     kOnlyGpt2);
  }
  if (!events.saw_merges) {
    throw UsageError(fmt::format("{}: model.merges is missing", name), "the file is damaged: fetch it again");
  }
  merge_added(events.tokens, std::move(events.added), name);
  return Bpe(std::move(events.tokens), events.merges, name);
}

Bpe Bpe::from_vocab_and_merges(std::string_view vocab_json, const std::string& vocab_name, std::string_view merges,
                               const std::string& merges_name) {
  TokenizerEvents events(vocab_name, TokenizerEvents::Where::kVocab);
  parse(vocab_json, events);
  // GPT-2's files do not say which tokens are special; there is one.
  for (Token& token : events.tokens) token.is_special = token.bytes == "<|endoftext|>";
  std::vector<Merge> pairs;
  int64_t line_number = 0;
  while (!merges.empty()) {
    const size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view line = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || (line_number == 1 && line.starts_with("#version"))) continue;
    pairs.push_back(merge_of(line, merges_name, fmt::format("line {}", line_number)));
  }
  return Bpe(std::move(events.tokens), pairs, vocab_name + " with " + merges_name);
}

Bpe Bpe::load(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const auto file = FileBytes::open(path, FileCache::kMap, kKey);
    const std::string base = path.filename().string();
    if (base == "vocab.json" || base == "merges.txt") {
      throw UsageError(fmt::format("{} is half a tokenizer", path.string()),
                       "give the folder that holds vocab.json and merges.txt");
    }
    return from_tokenizer_json(file->text(), file->name());
  }
  const fs::path whole = path / "tokenizer.json", vocab = path / "vocab.json", merges = path / "merges.txt";
  if (fs::exists(whole, error)) return load(whole);
  if (!fs::exists(vocab, error) || !fs::exists(merges, error)) {
    throw UsageError(
        fmt::format("the folder {} holds neither tokenizer.json nor vocab.json with merges.txt", path.string()),
        "check data.tokenizer");
  }
  const auto vocab_file = FileBytes::open(vocab, FileCache::kMap, kKey),
             merges_file = FileBytes::open(merges, FileCache::kMap, kKey);
  return from_vocab_and_merges(vocab_file->text(), vocab_file->name(), merges_file->text(), merges_file->name());
}

}  // namespace trireme
