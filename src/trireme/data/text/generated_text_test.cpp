// Generated text: rules kept, held-out sums kept out, and the losses that the header states.
#include "trireme/data/text/generated_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <iostream>
#include <set>

#include "trireme/base/text.h"
#include "trireme/data/data_test_util.h"

namespace trireme {
namespace {

// As the head of generated_text.h says.
constexpr double kUnigram = 3.25, kBigram = 1.74, kPerfect = 0.58;

struct Sum {
  int left, right;
  std::string answer;
};

std::vector<Sum> sums_of(const std::string& text) {
  std::vector<Sum> sums;
  for (const std::string_view line : split(text, '\n')) {
    const size_t plus = line.find('+'), equals = line.find('=');
    if (plus == line.npos) continue;
    sums.push_back({std::stoi(std::string(line.substr(0, plus))), std::stoi(std::string(line.substr(plus + 1))),
                    std::string(line.substr(equals + 1))});
  }
  return sums;
}

TEST(GeneratedTextTest, SumsAreRightAndHeldOutOnesStayOut) {
  const GeneratedTextOptions options;
  const GeneratedText text = generate_text(options);
  EXPECT_GE(static_cast<int64_t>(text.train.size()), options.num_bytes);
  std::set<std::pair<int, int>> trained;
  for (auto [left, right, answer] : sums_of(text.train)) {
    if (options.is_reversed) std::reverse(answer.begin(), answer.end());
    ASSERT_EQ(std::stoi(answer), left + right);
    ASSERT_FALSE(is_held_out_sum(left, right, options));
    trained.emplace(left, right);
  }
  size_t held_out = 0;
  for (const Sum& sum : sums_of(text.held_out)) {
    ++held_out;
    ASSERT_TRUE(is_held_out_sum(sum.left, sum.right, options));
    ASSERT_FALSE(trained.contains({sum.left, sum.right}) || trained.contains({sum.right, sum.left}));
  }
  EXPECT_GT(held_out, 500u);
  const auto questions = held_out_sums(options, 1 << 20);
  EXPECT_EQ(questions.size() + trained.size(), 625u) << "all pairs of two-digit numbers with digits up to 4";
  EXPECT_EQ(held_out_sums(options, 20).size(), 20u);
  for (const SumQuestion& q : questions) {
    EXPECT_EQ(("\n" + text.train).find("\n" + q.prompt), std::string::npos) << q.prompt;
    EXPECT_EQ(q.prompt.size(), questions[0].prompt.size());
    EXPECT_EQ(q.answer.size(), questions[0].answer.size());
  }
}

TEST(GeneratedTextTest, SumsWithCarriesAreRightEitherWay) {
  for (const bool is_reversed : {false, true}) {
    GeneratedTextOptions options;
    options.num_bytes = options.held_out_bytes = 20000;
    options.max_digit = 9;
    options.is_reversed = is_reversed;
    for (auto [left, right, answer] : sums_of(generate_text(options).train)) {
      ASSERT_EQ(answer.size(), 3u);
      if (is_reversed) std::reverse(answer.begin(), answer.end());
      ASSERT_EQ(std::stoi(answer), left + right);
    }
  }
}

TEST(GeneratedTextTest, SentencesAgree) {
  const GeneratedText text = generate_text({});
  int sentences = 0;
  for (const std::string_view line : split(text.held_out, '\n')) {
    if (!line.starts_with("the ")) continue;
    ++sentences;
    std::vector<std::string_view> words = split(line.substr(0, line.size() - 1), ' ');
    const auto is_noun = [](std::string_view word) {
      if (word.ends_with('s')) word.remove_suffix(1);
      for (const char* noun : {"dog", "cat", "bird", "fox", "girl", "boy", "king", "cook"}) {
        if (word == noun) return true;
      }
      return false;
    };
    const auto is_verb = [](std::string_view word) {
      if (word.ends_with('s')) word.remove_suffix(1);
      for (const char* verb : {"see", "like", "help", "find", "call", "meet"}) {
        if (word == verb) return true;
      }
      return false;
    };
    const auto subject = std::find_if(words.begin(), words.end(), is_noun),
               verb = std::find_if(words.begin(), words.end(), is_verb);
    ASSERT_TRUE(subject != words.end() && verb != words.end()) << line;
    ASSERT_NE(subject->ends_with('s'), verb->ends_with('s')) << line;
  }
  EXPECT_GT(sentences, 200);
}

TEST(GeneratedTextTest, SeedsDifferAndRepeat) {
  GeneratedTextOptions options;
  options.num_bytes = 5000;
  options.held_out_bytes = 1000;
  const GeneratedText first = generate_text(options), again = generate_text(options);
  EXPECT_EQ(first.train, again.train);
  EXPECT_EQ(first.held_out, again.held_out);
  options.seed = 2;
  EXPECT_NE(generate_text(options).train, first.train);
  options.sum_share = 1.5;
  expect_says(message_of([&] { generate_text(options); }), {"sum_share = 1.5"});
  options = {};
  options.max_digit = 10;
  expect_says(message_of([&] { generate_text(options); }), {"max_digit = 10"});
}

TEST(GeneratedTextTest, ExtremesOfTheOptionsEnd) {
  for (const double fraction : {0.0, 1.0}) {
    for (const int percent : {0, 90}) {
      for (const int digit : {1, 4, 9}) {
        GeneratedTextOptions options;
        options.num_bytes = options.held_out_bytes = 2000;
        options.sum_share = fraction;
        options.held_out_sums_percent = percent;
        options.max_digit = digit;
        options.num_digits = digit % 3 + 1;
        EXPECT_GE(generate_text(options).held_out.size(), 2000u);
        EXPECT_TRUE(std::isfinite(perfect_loss(options)));
      }
    }
  }
}

TEST(GeneratedTextTest, LossesAreThoseThatTheHeaderStates) {
  const std::string text = generate_text({}).train;
  std::vector<double> one(256), two(65536);
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    const auto a = static_cast<unsigned char>(text[i]), b = static_cast<unsigned char>(text[i + 1]);
    ++one[a];
    ++two[a * 256u + b];
  }
  const double n = static_cast<double>(text.size() - 1);
  double unigram = 0, bigram = 0;
  for (size_t a = 0; a < 256; ++a) {
    if (one[a] > 0) unigram -= one[a] / n * std::log(one[a] / n);
    for (size_t b = 0; b < 256; ++b) {
      const double count = two[a * 256 + b];
      if (count > 0) bigram -= count / n * std::log(count / one[a]);
    }
  }
  const double perfect = perfect_loss({});
  std::cout << fmt::format("unigram {:.3f} bigram {:.3f} perfect {:.3f} nats a byte\n", unigram, bigram, perfect);
  EXPECT_NEAR(unigram, kUnigram, 0.02);
  EXPECT_NEAR(bigram, kBigram, 0.02);
  EXPECT_NEAR(perfect, kPerfect, 0.005);
  // The length of a line, which perfect_loss computes, against the text itself.
  GeneratedTextOptions only;
  only.sum_share = 0;
  const std::string sentences = generate_text(only).train;
  const auto lines = static_cast<double>(std::count(sentences.begin(), sentences.end(), '\n'));
  const double nats = perfect_loss(only) * static_cast<double>(sentences.size()) / lines;
  // number, adjective, noun · near · verb · number, determiner, adjective, noun
  const double ln2 = std::log(2.0), phrase = 7 * ln2;
  const double expected = 6 * ln2 + 0.610864 + 0.3 * phrase + std::log(6.0) + phrase;
  EXPECT_NEAR(nats, expected, 0.05);
}

}  // namespace
}  // namespace trireme
