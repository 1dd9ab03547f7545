// What verify calls noise: small by the tensor's largest element, everywhere.
#include "trireme/measure/verify.h"

#include <gtest/gtest.h>

#include <span>

#include "trireme/observe/folder_test_util.h"

namespace trireme::measure {
namespace {

Difference difference(const std::string& tensor, int64_t step, double relative) {
  return {.tensor = tensor, .step = step, .num_elements = 3, .relative = relative};
}

Judgement judged(const std::vector<Difference>& differences) { return judge(differences).judgement; }

TEST(VerifyJudge, NothingIsEqual) {
  EXPECT_EQ(judged({}), Judgement::kEqual);
  EXPECT_EQ(words_of(judge({}), 10, 570),
            "equal: every loss, gradient and weight, bit for bit (10 steps, 570 tensors compared).\n");
}

TEST(VerifyJudge, SmallEverywhereIsNoiseAndSaysHowSmall) {
  const Verdict verdict =
      judge({difference("gradient.b", 1, 6e-7), difference("weight.b", 1, 2e-3), difference("gradient.a", 9, 1e-5)});
  EXPECT_EQ(verdict.judgement, Judgement::kNoise);
  EXPECT_EQ(verdict.first->tensor, "gradient.b");
  EXPECT_EQ(verdict.largest->tensor, "weight.b");
  const std::string words = words_of(verdict, 9, 70);
  EXPECT_NE(words.find("float noise: 3 elements of gradient.b, step 1 differ first, by at most 6.0e-07 of its largest "
                       "element (10 roundings of float32)"),
            std::string::npos)
      << words;
  EXPECT_NE(words.find("weight.b, step 1: 0.2 % of its largest element"), std::string::npos) << words;
}

TEST(VerifyJudge, WhatIsLargeIsNeverCalledNoise) {
  // Signs that turn: small in the first step, as large as the tensor itself later.
  for (const char* tensor : {"weight.b", "gradient.b", "loss"}) {
    for (const double relative : {0.02, 0.8, 2.0}) {
      const Verdict verdict = judge({difference("gradient.a", 1, 6e-7), difference(tensor, 4, relative)});
      EXPECT_EQ(verdict.judgement, Judgement::kGrown) << tensor << " " << relative;
      EXPECT_EQ(words_of(verdict, 9, 70).find("float noise"), std::string::npos);
      EXPECT_EQ(verdict.largest->tensor, tensor);
    }
  }
  EXPECT_NE(words_of(judge({difference("gradient.a", 1, 6e-7), difference("weight.b", 4, 2)}), 9, 70)
                .find("weight.b, step 4: 2 times its largest element"),
            std::string::npos);
}

TEST(VerifyJudge, FromEqualWeightsMuchLessIsABug) {
  EXPECT_EQ(judged({difference("loss", 1, 1e-3)}), Judgement::kBug);
  EXPECT_EQ(judged({difference("weight.a", 3, 1e-3)}), Judgement::kBug) << "its gradients are equal";
  const Verdict verdict = judge({difference("gradient.a", 1, 6e-7), difference("gradient.b", 1, 1e-3)});
  EXPECT_EQ(verdict.judgement, Judgement::kBug);
  EXPECT_EQ(verdict.first->tensor, "gradient.b");
  // The weights of that step have been through the optimizer, and the next step begins with them.
  EXPECT_EQ(judged({difference("gradient.a", 1, 6e-7), difference("weight.b", 1, 1e-3)}), Judgement::kNoise);
  EXPECT_EQ(judged({difference("gradient.a", 1, 6e-7), difference("gradient.b", 2, 1e-3)}), Judgement::kNoise);
}

TEST(VerifyJudge, NumbersThatAreNotFiniteInOneAreABug) {
  Difference broken = difference("weight.b", 7, 0);
  broken.finite_in_one = true;
  const Verdict verdict = judge({difference("gradient.a", 1, 6e-7), broken, difference("weight.c", 7, 0.001)});
  EXPECT_EQ(verdict.judgement, Judgement::kBug);
  EXPECT_EQ(verdict.first->tensor, "weight.b");
  EXPECT_NE(words_of(verdict, 9, 70).find("not finite in one"), std::string::npos);
}

TEST(VerifyJudge, ACommonFactorIsNamed) {
  Difference twice = difference("gradient.a", 1, 0.5);
  twice.ratio = 2;
  EXPECT_EQ(words_of(judge({twice}), 1, 9),
            "bug, not noise: gradient.a, step 1 is 2x as large in b as in a: a sum over ranks is missing or done "
            "twice.\n");
}

TensorView view_of(const std::string& name, std::span<const float> values) {
  const auto bytes = std::as_bytes(values);
  return {{name, DataType::kFloat, {static_cast<int64_t>(values.size())}}, bytes};
}

TEST(CommonRatio, IsThatOfEveryElement) {
  const std::vector<float> a = {1, -2, 3, 0}, twice = {2, -4, 6, 0}, other = {2, -4, 5, 1}, none = {0, 0, 0, 0};
  const auto ratio = [&](const std::vector<float>& b) { return common_ratio(view_of("a", a), view_of("b", b)); };
  EXPECT_NEAR(ratio(twice).value_or(0), 2, 1e-9);
  EXPECT_FALSE(ratio(other)) << "most elements are not all";
  EXPECT_FALSE(ratio(a)) << "equal is no ratio";
  EXPECT_FALSE(ratio(none));
}

TEST(CompareRecorded, FindsTheFirstTensorThatDiffersAndByHowMuch) {
  const TestFolder folder;
  const std::vector<float> loss = {2}, weight = {1, 2, 4, -8}, moved = {1, 2, 4, -8.008f};
  for (const char* side : {"a", "b"}) {
    std::filesystem::create_directory(folder / side);
    for (const char* step : {"step-000001", "step-000002"}) {
      const bool differs = side[0] == 'b' && step[10] == '2';
      const std::vector<TensorView> tensors = {view_of("loss", loss), view_of("weight.x", differs ? moved : weight)};
      write_safetensors(folder / side / (std::string(step) + ".safetensors"), tensors);
    }
  }
  EXPECT_TRUE(compare_recorded(folder / "a", folder / "b", 1).differences.empty());
  const Comparison both = compare_recorded(folder / "a", folder / "b", 2);
  EXPECT_EQ(both.steps, 2);
  EXPECT_EQ(both.tensors, 4);
  ASSERT_EQ(both.differences.size(), 1u);
  const Difference& found = both.differences[0];
  EXPECT_EQ(found.tensor, "weight.x");
  EXPECT_EQ(found.step, 2);
  EXPECT_EQ(found.num_elements, 1u);
  EXPECT_NEAR(found.relative, 0.001, 1e-5) << "by the largest element";
}

}  // namespace
}  // namespace trireme::measure
