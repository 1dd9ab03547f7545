#include "trireme/data/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/units.h"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and are read in place");

template <typename Call>
auto with_type(const TokenPiece& piece, Call call) {
  if (piece.width == 1) return call(static_cast<const uint8_t*>(piece.data));
  if (piece.width == 2) return call(static_cast<const uint16_t*>(piece.data));
  return call(static_cast<const uint32_t*>(piece.data));
}

/// Several independent maxima, which the compiler keeps in vector registers.
template <typename T>
T largest_of(const T* data, int64_t count) {
  constexpr int64_t kLanes = 64;
  T best[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) best[lane] = std::max(best[lane], data[i + lane]);
  }
  for (; i < count; ++i) best[0] = std::max(best[0], data[i]);
  return *std::max_element(best, best + kLanes);
}

template <typename T, typename Source>
TokenPiece owned(const Source& source) {
  auto values = std::make_shared<std::vector<T>>(source.begin(), source.end());
  const T* const data = values->data();
  const auto count = static_cast<int64_t>(values->size());
  return {std::move(values), data, count, sizeof(T)};
}

}  // namespace

TokenPiece TokenPiece::of_bytes(std::shared_ptr<const FileBytes> file) {
  const auto bytes = file->bytes();
  return {std::move(file), bytes.data(), static_cast<int64_t>(bytes.size()), 1};
}

TokenPiece TokenPiece::of_text(std::string text) {
  const auto kept = std::make_shared<const std::string>(std::move(text));
  return {kept, kept->data(), static_cast<int64_t>(kept->size()), 1};
}

TokenPiece TokenPiece::of_ids(const std::vector<int32_t>& ids) {
  const bool small = std::all_of(ids.begin(), ids.end(),
                                 [](int32_t id) { return id <= int32_t{std::numeric_limits<uint16_t>::max()}; });
  return small ? owned<uint16_t>(ids) : owned<uint32_t>(ids);
}

int64_t TokenPiece::at(int64_t index) const {
  return with_type(*this, [&](const auto* data) { return static_cast<int64_t>(data[index]); });
}

int64_t TokenPiece::largest() const {
  if (count == 0) return -1;
  return with_type(*this, [&](const auto* data) { return static_cast<int64_t>(largest_of(data, count)); });
}

TokenRow::TokenRow(std::vector<TokenPiece> pieces) : pieces_(std::move(pieces)) {
  int64_t end = 0;
  for (const TokenPiece& piece : pieces_) ends_.push_back(end += piece.count);
}

void TokenRow::copy(int64_t first, std::span<int64_t> out) const {
  auto place = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  for (size_t done = 0; done < out.size(); ++place) {
    const TokenPiece& piece = pieces_.at(place);
    const int64_t from = first + static_cast<int64_t>(done) - (ends_[place] - piece.count);
    const int64_t n = std::min(piece.count - from, static_cast<int64_t>(out.size() - done));
    with_type(piece,
              [&](const auto* data) { std::copy_n(data + from, n, out.begin() + static_cast<ptrdiff_t>(done)); });
    done += static_cast<size_t>(n);
  }
}

TokenDataset::TokenDataset(std::shared_ptr<const TokenRow> row, const SamplePart& part, int64_t seq)
    : row_(std::move(row)), part_(part), seq_(seq) {
  if (seq < 1 || part.first() < 0 || part.count() < 1 ||
      part.first() + part.count() > num_windows(row_->count(), seq)) {
    throw UsageError(fmt::format("windows {} to {} of {} tokens each are not all in {} tokens", part.first(),
                                 part.first() + part.count() - 1, seq, row_->count()));
  }
}

void TokenDataset::read_sample(int64_t index, const SampleSlot& slot) const {
  const int64_t start = part_.at(index) * seq_;
  if (const auto tokens = slot.input<int64_t>(); !tokens.empty()) row_->copy(start, tokens);
  if (const auto targets = slot.target<int64_t>(); !targets.empty()) row_->copy(start + 1, targets);
}

SplitTokens split_tokens(std::vector<TokenPiece> pieces, int64_t seq, const HeldOutWindows& held_out,
                         const std::string& name) {
  const double fraction = held_out.fraction;
  if (seq < 1) throw UsageError(fmt::format("model.seq = {} must be at least 1", seq));
  if (!(fraction >= 0 && fraction < 1)) {
    throw UsageError(fmt::format("data.held_out = {} must be from 0 to below 1", fraction));
  }
  const auto row = std::make_shared<const TokenRow>(std::move(pieces));
  const int64_t windows = num_windows(row->count(), seq), least = fraction > 0 ? 2 : 1;
  if (windows < least) {
    throw UsageError(
        fmt::format("{} has {} tokens, but {} are needed: {} of model.seq = {} and one more for the last target", name,
                    format_count(row->count()), format_count(least * seq + 1),
                    least == 2 ? "a window for training and one held out," : "a window", seq),
        "give more data, or a smaller model.seq");
  }
  const SampleSplit parts = split_samples(windows, fraction, held_out.how, held_out.seed);
  SplitTokens split;
  split.train = std::make_shared<TokenDataset>(row, parts.train, seq);
  if (parts.held_out.count() > 0) split.held_out = std::make_shared<TokenDataset>(row, parts.held_out, seq);
  return split;
}

}  // namespace trireme
