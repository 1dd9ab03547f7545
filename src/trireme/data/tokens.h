// A long row of tokens in one or many pieces, and the windows of it that are samples.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/data/file_bytes.h"
#include "trireme/data/split.h"

namespace trireme {

/// Tokens that lie together in memory or in a mapped file, little-endian, 1, 2 or 4 bytes each.
struct TokenPiece {
  std::shared_ptr<const void> owner;  ///< keeps data alive
  const void* data = nullptr;
  int64_t count = 0;
  int width = 1;

  static TokenPiece of_bytes(std::shared_ptr<const FileBytes> file);
  static TokenPiece of_text(std::string text);
  static TokenPiece of_ids(const std::vector<int32_t>& ids);  ///< kept in 2 bytes each where all fit

  int64_t at(int64_t index) const;
  /// One pass at the speed of memory; -1 for no tokens.
  int64_t largest() const;
};

/// Immutable once made. Threads: all.
class TokenRow {
 public:
  explicit TokenRow(std::vector<TokenPiece> pieces);
  int64_t count() const { return ends_.empty() ? 0 : ends_.back(); }
  /// Tokens first … first + out.size() - 1, which must be there; may cross pieces.
  void copy(int64_t first, std::span<int64_t> out) const;

 private:
  std::vector<TokenPiece> pieces_;
  std::vector<int64_t> ends_;  ///< of each piece, in the row
};

/// Window w of the row: tokens w·seq … (w+1)·seq - 1, targets one further. Windows do not overlap, so each token but
/// the first is a target in one of them; fewer than seq tokens at the end of the row are in none.
class TokenDataset : public Dataset {
 public:
  /// `part` has at least one window; all are there.
  TokenDataset(std::shared_ptr<const TokenRow> row, const SamplePart& part, int64_t seq);
  int64_t size() const override { return part_.count(); }
  SampleShape shape() const override { return SampleShape::language(seq_); }

 protected:
  void read_sample(int64_t index, const SampleSlot& slot) const override;

 private:
  std::shared_ptr<const TokenRow> row_;
  SamplePart part_;
  int64_t seq_;
};

/// Windows of `seq` tokens that fit, each with one more token for its last target.
inline int64_t num_windows(int64_t num_tokens, int64_t seq) { return num_tokens < 1 ? 0 : (num_tokens - 1) / seq; }

struct SplitTokens {
  std::shared_ptr<const Dataset> train, held_out;  ///< held_out is null where the fraction is 0
};
/// How windows are held out: what split_samples() takes.
struct HeldOutWindows {
  double fraction = 0;
  HoldOut how = HoldOut::kRandom;
  uint64_t seed = 1;
};
/// The windows of all pieces, split. Throws UsageError naming `name` and both numbers where there are too few tokens.
SplitTokens split_tokens(std::vector<TokenPiece> pieces, int64_t seq, const HeldOutWindows& held_out,
                         const std::string& name);

}  // namespace trireme
