#include "trireme/data/text/generated_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"
#include "trireme/data/permutation.h"

namespace trireme {
namespace {

constexpr std::array<std::string_view, 8> kNouns{"dog", "cat", "bird", "fox", "girl", "boy", "king", "cook"};
constexpr std::array<std::string_view, 6> kVerbs{"see", "like", "help", "find", "call", "meet"};
constexpr std::array<std::string_view, 4> kAdjectives{"big", "small", "red", "happy"};
constexpr std::array<std::string_view, 2> kOne{"a", "this"}, kMany{"two", "these"};
constexpr double kAdjectiveFraction = 0.5, kManyFraction = 0.5, kNearFraction = 0.3;

/// Numbers in sequence.
class Dice {
 public:
  Dice(uint64_t seed, std::string_view stream) : philox_(seed, stream) {}
  uint64_t below(uint64_t n) { return philox_.below(n, next_++); }
  bool chance(double fraction) { return static_cast<double>(below(1u << 24)) < fraction * (1u << 24); }
  template <size_t N>
  std::string_view one_of(const std::array<std::string_view, N>& words) {
    return words[below(N)];
  }

 private:
  Philox philox_;
  uint64_t next_ = 0;
};

// Expected bits or bytes of what the functions below write: the same shape once more, so that the two are read
// together.
struct Expected {
  double nats = 0, bytes = 0;
  Expected operator+(const Expected& o) const { return {nats + o.nats, bytes + o.bytes}; }
  Expected operator*(double fraction) const { return {nats * fraction, bytes * fraction}; }
};

Expected fixed(double bytes) { return {0, bytes}; }

Expected decision(double fraction) {
  const auto part = [](double p) { return p > 0 ? -p * std::log(p) : 0; };
  return {part(fraction) + part(1 - fraction), 0};
}

template <size_t N>
Expected word(const std::array<std::string_view, N>& words) {
  size_t total = 0;
  for (const std::string_view w : words) total += w.size();
  return {std::log(static_cast<double>(N)), static_cast<double>(total) / N};
}

void write_noun(Dice& dice, bool many, std::string& out) {
  if (dice.chance(kAdjectiveFraction)) (out += dice.one_of(kAdjectives)) += ' ';
  out += dice.one_of(kNouns);
  if (many) out += 's';
}

Expected expected_noun() {
  return decision(kAdjectiveFraction) + (word(kAdjectives) + fixed(1)) * kAdjectiveFraction + word(kNouns) +
         fixed(kManyFraction);
}

void write_phrase(Dice& dice, std::string& out) {
  const bool many = dice.chance(kManyFraction);
  (out += many ? dice.one_of(kMany) : dice.one_of(kOne)) += ' ';
  write_noun(dice, many, out);
}

Expected expected_phrase() {
  return decision(kManyFraction) + word(kMany) * kManyFraction + word(kOne) * (1 - kManyFraction) + fixed(1) +
         expected_noun();
}

void write_sentence(Dice& dice, std::string& out) {
  const bool many = dice.chance(kManyFraction);
  out += "the ";
  write_noun(dice, many, out);
  if (dice.chance(kNearFraction)) {
    out += " near ";
    write_phrase(dice, out);
  }
  (out += ' ') += dice.one_of(kVerbs);
  out += many ? " " : "s ";
  write_phrase(dice, out);
  out += ".\n";
}

Expected expected_sentence() {
  return decision(kManyFraction) + fixed(4) + expected_noun() + decision(kNearFraction) +
         (fixed(6) + expected_phrase()) * kNearFraction + fixed(1) + word(kVerbs) + fixed(1 + (1 - kManyFraction)) +
         expected_phrase() + fixed(2);
}

int answer_digits(const GeneratedTextOptions& o) { return o.num_digits + (o.max_digit > 4 ? 1 : 0); }

SumQuestion question(int left, int right, const GeneratedTextOptions& o) {
  SumQuestion sum{fmt::format("{:0{}}+{:0{}}=", left, o.num_digits, right, o.num_digits),
                  fmt::format("{:0{}}", left + right, answer_digits(o))};
  if (o.is_reversed) std::reverse(sum.answer.begin(), sum.answer.end());
  return sum;
}

void check(const GeneratedTextOptions& o) {
  const auto need = [](bool right, const std::string& what) {
    if (!right) throw UsageError("generated text: " + what);
  };
  need(o.num_bytes > 0 && o.held_out_bytes >= 0,
       fmt::format("{} bytes for training and {} held out cannot be", o.num_bytes, o.held_out_bytes));
  need(o.sum_share >= 0 && o.sum_share <= 1, fmt::format("sum_share = {} must be from 0 to 1", o.sum_share));
  need(o.num_digits >= 1 && o.num_digits <= 4, fmt::format("num_digits = {} must be from 1 to 4", o.num_digits));
  need(o.max_digit >= 1 && o.max_digit <= 9, fmt::format("max_digit = {} must be from 1 to 9", o.max_digit));
  need(o.held_out_sums_percent >= 0 && o.held_out_sums_percent <= 90,
       fmt::format("held_out_sums_percent = {} must be from 0 to 90", o.held_out_sums_percent));
}

uint64_t num_operands(const GeneratedTextOptions& o) {
  uint64_t count = 1;
  for (int i = 0; i < o.num_digits; ++i) count *= static_cast<uint64_t>(o.max_digit + 1);
  return count;
}

uint64_t num_pairs(const GeneratedTextOptions& o) { return num_operands(o) * num_operands(o); }

/// Number `index` of those whose digits are small enough: index in base max_digit + 1, read in base 10.
int operand_at(uint64_t index, const GeneratedTextOptions& o) {
  const auto base = static_cast<uint64_t>(o.max_digit + 1);
  uint64_t value = 0;
  for (uint64_t place = 1; index > 0; index /= base, place *= 10) value += index % base * place;
  return static_cast<int>(value);
}

struct Operands {
  int left, right;
};

Operands pair_at(uint64_t index, const GeneratedTextOptions& o) {
  return {operand_at(index / num_operands(o), o), operand_at(index % num_operands(o), o)};
}

std::string write_part(const GeneratedTextOptions& o, int64_t num_bytes, bool is_held_out) {
  Dice dice(o.seed, is_held_out ? "held-out text" : "training text");
  // With few operands a small fraction may hold out nothing, or everything: then any sum is right for that part.
  bool any = false;
  for (uint64_t i = 0; i < num_pairs(o) && !any; ++i) {
    const auto [left, right] = pair_at(i, o);
    any = is_held_out_sum(left, right, o) == is_held_out;
  }
  std::string text;
  text.reserve(static_cast<size_t>(num_bytes) + 64);
  while (static_cast<int64_t>(text.size()) < num_bytes) {
    if (!dice.chance(o.sum_share)) {
      write_sentence(dice, text);
      continue;
    }
    Operands pair = pair_at(dice.below(num_pairs(o)), o);
    while (any && is_held_out_sum(pair.left, pair.right, o) != is_held_out) pair = pair_at(dice.below(num_pairs(o)), o);
    const SumQuestion sum = question(pair.left, pair.right, o);
    ((text += sum.prompt) += sum.answer) += '\n';
  }
  return text;
}

}  // namespace

bool is_held_out_sum(int left, int right, const GeneratedTextOptions& options) {
  const auto low = static_cast<uint64_t>(std::min(left, right)), high = static_cast<uint64_t>(std::max(left, right));
  const Philox philox(options.seed, "held-out sums");
  return philox.below(100, low << 32 | high) < static_cast<uint64_t>(options.held_out_sums_percent);
}

GeneratedText generate_text(const GeneratedTextOptions& options) {
  check(options);
  return {write_part(options, options.num_bytes, false), write_part(options, options.held_out_bytes, true)};
}

std::vector<SumQuestion> held_out_sums(const GeneratedTextOptions& options, int64_t most) {
  check(options);
  const Permutation order(num_pairs(options), options.seed, 0);
  std::vector<SumQuestion> sums;
  for (uint64_t i = 0; i < num_pairs(options) && static_cast<int64_t>(sums.size()) < most; ++i) {
    const auto [left, right] = pair_at(order(i), options);
    if (is_held_out_sum(left, right, options)) sums.push_back(question(left, right, options));
  }
  return sums;
}

double perfect_loss(const GeneratedTextOptions& options) {
  check(options);
  const SumQuestion any = question(0, 0, options);
  const Expected sum{std::log(static_cast<double>(num_pairs(options))),
                     static_cast<double>(any.prompt.size() + any.answer.size() + 1)};
  const double fraction = options.sum_share;
  const Expected line = decision(fraction) + sum * fraction + expected_sentence() * (1 - fraction);
  return line.nats / line.bytes;
}

}  // namespace trireme
