// Text made from a seed that is worth learning: small sums, and sentences of a grammar with agreement.
//
//   23+14=37                                 a sum of fixed width; with digits up to 4 there is nothing to carry
//   the red dogs near a cat see two birds.   the verb agrees with "dogs", not with "cat"; determiners with their noun
//
// Which sums never occur in the training part is decided by a hash of the operands, for both orders of them alike, so
// a right answer to one of these was computed, not remembered.
//
// With the defaults, in nats a byte (generated_text_test.cpp computes them): unigram 3.25, bigram 1.74, and 0.58 for a
// model that knows all the rules and guesses only what is free (perfect_loss). Windows that start inside a line cost
// a little more. A loss below the bigram's means that words were learnt; that sums were is seen by asking for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

/// All that shapes the text; equal values give equal bytes on every machine.
struct GeneratedTextOptions {
  uint64_t seed = 1;
  int64_t num_bytes = int64_t{2} << 20;        ///< of the training part, rounded up to a whole line
  int64_t held_out_bytes = int64_t{64} << 10;  ///< of the held-out part, likewise
  double sum_share = 0.8;                      ///< of the lines; the rest are sentences
  int num_digits = 2;                          ///< of each operand, leading zeros included
  int max_digit = 4;                           ///< digits are 0 … this, all alike; above 4 there are carries
  bool is_reversed = false;                    ///< answers start with the ones, which helps where there are carries
  int held_out_sums_percent = 10;              ///< of the operand pairs; 0: none is kept from training
};

struct GeneratedText {
  std::string train;
  std::string
      held_out;  ///< its sums are held-out ones only (any, where none are held out); its sentences are drawn again
};

/// A sum that the training part does not contain: prompt and answer are a whole line, without its end.
struct SumQuestion {
  std::string prompt;  ///< "23+14="
  std::string answer;  ///< "37", as the text writes it
  bool operator==(const SumQuestion&) const = default;
};

/// Throws UsageError for options that cannot be.
GeneratedText generate_text(const GeneratedTextOptions& options);
/// Whether left + right, and with it right + left, is kept from training.
bool is_held_out_sum(int left, int right, const GeneratedTextOptions& options);
/// Held-out sums in an order drawn from the seed, all or the first `most` of them.
std::vector<SumQuestion> held_out_sums(const GeneratedTextOptions& options, int64_t most);
/// Nats a byte of a model that knows the rules: the entropy of a line by its expected length.
double perfect_loss(const GeneratedTextOptions& options);

}  // namespace trireme
