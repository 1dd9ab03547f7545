// Reads tokenizer.json, vocab.json and merges.txt.
#include <fmt/format.h>

#include <array>
#include <limits>
#include <optional>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/data/file_bytes.h"
#include "trireme/data/text/bpe.h"
#include "trireme/data/text/character_class.h"

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

constexpr const char* kDamaged = "the file is damaged or cut short: fetch it again";

/// Takes a tokenizer.json or a vocab.json apart. Every refusal names the file.
class TokenizerReader {
 public:
  explicit TokenizerReader(const std::string& name) : name_(name) {}

  nlohmann::json parse(std::string_view text) const {
    try {
      nlohmann::json json = parse_strict_json(text);
      if (json.is_object()) return json;
    } catch (const JsonError& error) {
      const bool has_place = error.byte() > 0;
      throw UsageError(has_place ? fmt::format("{} is not JSON, at byte {}: {}", name_, error.byte(), error.what())
                                 : fmt::format("{}: {}", name_, error.what()),
                       kDamaged);
    }
    fail("the whole is not an object",
         "data.tokenizer names a tokenizer.json of Hugging Face, or a folder with vocab.json and merges.txt");
  }

  /// Refuses what would cut or join text in another way than GPT-2 does.
  void check_kind(const nlohmann::json& json) const {
    const nlohmann::json &model = part(json, "model"), &words = part(json, "pre_tokenizer");
    if (text(model, "type") != "BPE")
      fail(fmt::format("model.type is \"{}\", not \"BPE\"", text(model, "type")), kOnlyGpt2);
    if (text(words, "type") != "ByteLevel") {
      fail(fmt::format("pre_tokenizer.type is \"{}\", not \"ByteLevel\"", text(words, "type")), kOnlyGpt2);
    }
    const auto refuse = [&](const nlohmann::json& object, const char* where, const char* key, bool usual) {
      const auto found = object.find(key);
      if (found == object.end() || !found->is_boolean() || found->get<bool>() == usual) return;
      fail(fmt::format("{}.{} = {} is not supported", where, key, !usual), kOnlyGpt2);
    };
    refuse(model, "model", "byte_fallback", false);
    refuse(model, "model", "ignore_merges", false);
    refuse(words, "pre_tokenizer", "add_prefix_space", false);
    refuse(words, "pre_tokenizer", "use_regex", true);
    const auto refuse_text = [&](const nlohmann::json& object, const char* where, const char* key) {
      const std::string value = text(object, key);
      if (!value.empty()) fail(fmt::format("{}.{} = {} is not supported", where, key, value), kOnlyGpt2);
    };
    refuse_text(model, "model", "continuing_subword_prefix");
    refuse_text(model, "model", "end_of_word_suffix");
    refuse_text(part(json, "normalizer"), "normalizer", "type");
  }

  std::vector<Bpe::Token> vocabulary(const nlohmann::json& json) const {
    std::vector<Bpe::Token> tokens;
    for (const auto& [token, id] : json.items()) {
      tokens.push_back({bytes_of(token, name_, "token"), id_of(id, token), false});
    }
    return tokens;
  }

  std::vector<Bpe::Merge> merges(const nlohmann::json& json) const {
    std::vector<Bpe::Merge> merges;
    for (const nlohmann::json& merge : json) {
      const std::string where = fmt::format("merge {}", merges.size());
      if (merge.is_string()) {
        merges.push_back(merge_of(merge.get_ref<const std::string&>(), name_, where));
        continue;
      }
      if (!merge.is_array() || merge.size() != 2) fail(fmt::format("{} has {} tokens, not two", where, merge.size()));
      if (!merge[0].is_string() || !merge[1].is_string()) fail(where + " has a token that is not a text");
      merges.emplace_back(bytes_of(merge[0].get_ref<const std::string&>(), name_, where),
                          bytes_of(merge[1].get_ref<const std::string&>(), name_, where));
    }
    return merges;
  }

  std::vector<Bpe::Token> added(const nlohmann::json& json) const {
    std::vector<Bpe::Token> tokens;
    for (const nlohmann::json& token : json) {
      const bool is_whole = token.is_object() && token.contains("id") && !text(token, "content").empty();
      if (!is_whole) fail(fmt::format("added_tokens[{}] lacks an id or a content", tokens.size()));
      tokens.push_back({text(token, "content"), id_of(token["id"], text(token, "content")), true});
    }
    return tokens;
  }

  /// An object or a list of an object; an empty one where there is none.
  static const nlohmann::json& part(const nlohmann::json& json, const char* key) {
    static const nlohmann::json none = nlohmann::json::object();
    const auto found = json.find(key);
    return found == json.end() || !found->is_structured() ? none : *found;
  }
  [[noreturn]] void fail(const std::string& problem, const std::string& cure = {}) const {
    throw UsageError(fmt::format("{}: {}", name_, problem), cure);
  }

 private:
  static std::string text(const nlohmann::json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
  }
  int32_t id_of(const nlohmann::json& json, const std::string& token) const {
    const std::string shown = token.substr(0, 40);
    if (json.is_string()) fail(fmt::format("the id of token \"{}\" is a text, not a number", shown));
    if (!json.is_number()) fail(fmt::format("the id of token \"{}\" is not a number", shown));
    const bool fits = json.is_number_unsigned() && json.get<uint64_t>() <= std::numeric_limits<int32_t>::max();
    if (!fits) fail(fmt::format("id {} of token \"{}\" is not a whole number from 0 to 2^31 - 1", json.dump(), shown));
    return json.get<int32_t>();
  }

  const std::string& name_;
};

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
  const TokenizerReader reader(name);
  const nlohmann::json json = reader.parse(text);
  reader.check_kind(json);
  const nlohmann::json& model = reader.part(json, "model");
  if (!model.contains("merges")) reader.fail("model.merges is missing", kDamaged);
  std::vector<Token> tokens = reader.vocabulary(reader.part(model, "vocab"));
  merge_added(tokens, reader.added(reader.part(json, "added_tokens")), name);
  return Bpe(std::move(tokens), reader.merges(reader.part(model, "merges")), name);
}

Bpe Bpe::from_vocab_and_merges(std::string_view vocab_json, const std::string& vocab_name, std::string_view merges,
                               const std::string& merges_name) {
  const TokenizerReader reader(vocab_name);
  std::vector<Token> tokens = reader.vocabulary(reader.parse(vocab_json));
  // GPT-2's files do not say which tokens are special; there is one.
  for (Token& token : tokens) token.is_special = token.bytes == "<|endoftext|>";
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
  return Bpe(std::move(tokens), pairs, vocab_name + " with " + merges_name);
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
