#include "trireme/data/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <queue>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/data/text/pretokenize.h"

namespace trireme {
namespace {

constexpr uint64_t kNoPair = ~uint64_t{0};
constexpr size_t kMaxCachedWords = size_t{1} << 18, kMaxCachedBytes = 64;

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

struct MergeTarget {
  int32_t rank, id;
};

/// From a pair of ids to its merge: open addressing, at most half full.
class MergeTable {
 public:
  explicit MergeTable(size_t count) : slots_(std::bit_ceil(2 * count + 2)) {}

  /// False where the pair is there already.
  bool insert(uint64_t pair, MergeTarget target) {
    size_t at = place(pair);
    for (; slots_[at].pair != kNoPair; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].pair == pair) return false;
    }
    slots_[at] = {pair, target};
    return true;
  }
  const MergeTarget* find(uint64_t pair) const {
    for (size_t at = place(pair); slots_[at].pair != kNoPair; at = (at + 1) & (slots_.size() - 1)) {
      if (slots_[at].pair == pair) return &slots_[at].target;
    }
    return nullptr;
  }

 private:
  struct Slot {
    uint64_t pair = kNoPair;
    MergeTarget target{};
  };
  size_t place(uint64_t pair) const { return (pair * 0x9e3779b97f4a7c15u >> 20) & (slots_.size() - 1); }
  std::vector<Slot> slots_;
};

/// Bytes as a message can show them: quoted, and what is not printable as \xNN.
std::string shown(std::string_view bytes) {
  std::string text = "\"";
  for (const char c : bytes.substr(0, 40)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", byte);
    }
  }
  return text + (bytes.size() > 40 ? "…\"" : "\"");
}

}  // namespace

struct Bpe::Tables {
  explicit Tables(size_t num_merges) : merges(num_merges) {}

  std::vector<Token> tokens;       ///< by id
  std::vector<uint32_t> by_bytes;  ///< places in tokens, by bytes
  std::vector<uint32_t> specials;  ///< places in tokens, the longest first
  std::array<bool, 256> starts_special{};
  std::array<int32_t, 256> of_byte{};
  MergeTable merges;

  std::optional<int32_t> find(std::string_view bytes) const {
    const auto at = std::lower_bound(by_bytes.begin(), by_bytes.end(), bytes,
                                     [&](uint32_t i, std::string_view wanted) { return tokens[i].bytes < wanted; });
    if (at == by_bytes.end() || tokens[*at].bytes != bytes) return std::nullopt;
    return tokens[*at].id;
  }

  void index(const std::string& name);
  void add_merge(const Merge& merge, size_t rank, const std::string& name);
  const Token* special_at(std::string_view text, size_t at) const;
  void encode_word(std::string_view word, std::vector<int32_t>& out) const;
};

void Bpe::Tables::index(const std::string& name) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].id < 0)
      throw UsageError(
          fmt::format("{}: token {} has the id {}, which is negative", name, shown(tokens[i].bytes), tokens[i].id));
    if (tokens[i].bytes.empty()) throw UsageError(fmt::format("{}: token {} is empty", name, tokens[i].id));
    if (i > 0 && tokens[i].id == tokens[i - 1].id) {
      throw UsageError(fmt::format("{}: tokens {} and {} have the same id {}", name, shown(tokens[i - 1].bytes),
                                   shown(tokens[i].bytes), tokens[i].id),
                       "the file is damaged: fetch it again");
    }
    by_bytes.push_back(static_cast<uint32_t>(i));
  }
  std::stable_sort(by_bytes.begin(), by_bytes.end(),
                   [&](uint32_t a, uint32_t b) { return tokens[a].bytes < tokens[b].bytes; });
  for (size_t i = 1; i < by_bytes.size(); ++i) {
    const Token &a = tokens[by_bytes[i - 1]], &b = tokens[by_bytes[i]];
    if (a.bytes == b.bytes)
      throw UsageError(fmt::format("{}: token {} is there twice, as {} and {}", name, shown(a.bytes), a.id, b.id),
                       "the file is damaged: fetch it again");
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].is_special) continue;
    specials.push_back(static_cast<uint32_t>(i));
    starts_special[static_cast<unsigned char>(tokens[i].bytes[0])] = true;
  }
  std::stable_sort(specials.begin(), specials.end(),
                   [&](uint32_t a, uint32_t b) { return tokens[a].bytes.size() > tokens[b].bytes.size(); });
  for (size_t byte = 0; byte < 256; ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    const auto id = find(bytes);
    if (!id) {
      throw UsageError(fmt::format("{}: byte {} has no token, so not every text can be encoded", name, byte),
                       "only byte-level BPE tokenizers, such as GPT-2's, can be used");
    }
    of_byte[byte] = *id;
  }
}

void Bpe::Tables::add_merge(const Merge& merge, size_t rank, const std::string& name) {
  const auto need = [&](const std::string& bytes) {
    const auto id = find(bytes);
    if (!id) {
      throw UsageError(fmt::format("{}: merge {} ({} + {}) needs the token {}, which the vocabulary lacks", name, rank,
                                   shown(merge.first), shown(merge.second), shown(bytes)),
                       "vocabulary and merges belong to different tokenizers, or one is cut short");
    }
    return *id;
  };
  const int32_t left = need(merge.first), right = need(merge.second), made = need(merge.first + merge.second);
  if (!merges.insert(pair_of(left, right), {static_cast<int32_t>(rank), made})) {
    throw UsageError(
        fmt::format("{}: merge {} ({} + {}) is there twice", name, rank, shown(merge.first), shown(merge.second)),
        "the file is damaged: fetch it again");
  }
}

const Bpe::Token* Bpe::Tables::special_at(std::string_view text, size_t at) const {
  if (!starts_special[static_cast<unsigned char>(text[at])]) return nullptr;
  for (const uint32_t place : specials) {
    if (text.substr(at).starts_with(tokens[place].bytes)) return &tokens[place];
  }
  return nullptr;
}

/// Joins the pair of lowest rank, the leftmost of equals, until none is left. The heap keeps a long word at n log n.
void Bpe::Tables::encode_word(std::string_view word, std::vector<int32_t>& out) const {
  struct Piece {
    int32_t id;
    int32_t before, after;  ///< neighbours, -1 at the ends; id is -1 once a piece was joined to the one before
  };
  struct Candidate {
    int32_t rank, at, made;
    uint64_t pair;
    bool operator<(const Candidate& other) const {  // the top of the heap is the least
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  std::vector<Piece> pieces(word.size());
  const auto last = static_cast<int32_t>(word.size()) - 1;
  for (int32_t i = 0; i <= last; ++i) {
    pieces[static_cast<size_t>(i)] = {of_byte[static_cast<unsigned char>(word[static_cast<size_t>(i)])], i - 1,
                                      i < last ? i + 1 : -1};
  }
  const auto piece = [&](int32_t at) -> Piece& { return pieces[static_cast<size_t>(at)]; };
  std::priority_queue<Candidate> heap;
  const auto consider = [&](int32_t at) {
    if (at < 0 || piece(at).after < 0) return;
    const uint64_t pair = pair_of(piece(at).id, piece(piece(at).after).id);
    if (const MergeTarget* found = merges.find(pair)) heap.push({found->rank, at, found->id, pair});
  };
  for (int32_t i = 0; i < last; ++i) consider(i);
  while (!heap.empty()) {
    const Candidate best = heap.top();
    heap.pop();
    Piece& left = piece(best.at);
    // Stale: one of the two was joined to something since.
    if (left.id < 0 || left.after < 0 || pair_of(left.id, piece(left.after).id) != best.pair) continue;
    Piece& right = piece(left.after);
    left.id = best.made;
    left.after = right.after;
    right.id = -1;
    if (left.after >= 0) piece(left.after).before = best.at;
    consider(left.before);
    consider(best.at);
  }
  for (int32_t at = 0; at >= 0; at = piece(at).after) out.push_back(piece(at).id);
}

Bpe::Bpe(std::vector<Token> tokens, const std::vector<Merge>& merges, const std::string& name) {
  if (tokens.empty()) throw UsageError(fmt::format("{}: the vocabulary is empty", name));
  if (merges.empty()) {
    throw UsageError(fmt::format("{}: there are no merges", name),
                     "without them text is bytes: leave data.tokenizer empty for that");
  }
  constexpr size_t kMost = std::numeric_limits<int32_t>::max();
  if (tokens.size() > kMost || merges.size() > kMost) throw UsageError(fmt::format("{}: more than 2^31 entries", name));
  auto tables = std::make_shared<Tables>(merges.size());
  tables->tokens = std::move(tokens);
  tables->index(name);
  for (size_t i = 0; i < merges.size(); ++i) tables->add_merge(merges[i], i, name);
  tables_ = std::move(tables);
}

int64_t Bpe::vocab_size() const { return int64_t{tables_->tokens.back().id} + 1; }

std::vector<int32_t> Bpe::encode(std::string_view text) const {
  struct Known {
    size_t first, count;  ///< where in the result this word was written before
  };
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4);
  std::unordered_map<std::string_view, Known> cache;
  const auto encode_words = [&](std::string_view part) {
    constexpr size_t kMostBytes = size_t{1} << 30;  // of one word: positions are 32 bits
    for (size_t at = 0; at < part.size();) {
      const size_t end = std::min(word_end(part, at), at + kMostBytes);
      const std::string_view word = part.substr(at, end - at);
      at = end;
      if (word.size() == 1) {
        ids.push_back(tables_->of_byte[static_cast<unsigned char>(word[0])]);
        continue;
      }
      if (word.size() > kMaxCachedBytes) {
        tables_->encode_word(word, ids);
        continue;
      }
      const auto found = cache.find(word);
      if (found != cache.end()) {
        const Known known = found->second;
        for (size_t i = 0; i < known.count; ++i) ids.push_back(ids[known.first + i]);
        continue;
      }
      if (cache.size() >= kMaxCachedWords) cache.clear();
      const size_t first = ids.size();
      tables_->encode_word(word, ids);
      cache.emplace(word, Known{first, ids.size() - first});
    }
  };
  size_t done = 0;
  if (!tables_->specials.empty()) {
    for (size_t at = 0; at < text.size();) {
      const Token* const special = tables_->special_at(text, at);
      if (special == nullptr) {
        ++at;
        continue;
      }
      encode_words(text.substr(done, at - done));
      ids.push_back(special->id);
      at += special->bytes.size();
      done = at;
    }
  }
  encode_words(text.substr(done));
  return ids;
}

std::string Bpe::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    const auto& tokens = tables_->tokens;
    const auto at = std::lower_bound(tokens.begin(), tokens.end(), id,
                                     [](const Token& token, int32_t wanted) { return token.id < wanted; });
    if (at == tokens.end() || at->id != id) {
      throw UsageError(fmt::format("id {} has no token: the vocabulary has ids up to {}", id, tokens.back().id));
    }
    text += at->bytes;
  }
  return text;
}

}  // namespace trireme
