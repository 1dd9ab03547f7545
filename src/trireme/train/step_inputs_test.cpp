#include "trireme/train/step_inputs.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

std::string difference(const Inputs& given, const Inputs& before) {
  try {
    require_same_forms(given, before);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "none";
}

TEST(RequireSameForms, NamesTheFirstDifference) {
  const torch::Tensor image = torch::zeros({2, 3, 4}), word = torch::zeros({2}, torch::kInt64);
  const Inputs first{{image, word}, {word}};
  EXPECT_EQ(difference({{image + 1, word}, {word}}, first), "none");
  EXPECT_NE(difference({{image}, {word}}, first).find("a batch has 1 inputs, and the first had 2"), std::string::npos);
  EXPECT_NE(difference({{image, word}, {word, word}}, first).find("has 2 targets, and the first had 1"),
            std::string::npos);
  EXPECT_NE(difference({{torch::zeros({2, 3, 5}), word}, {word}}, first).find("input 0 of a micro-batch"),
            std::string::npos);
  EXPECT_NE(difference({{image, word}, {word.to(torch::kFloat32)}}, first).find("target 0 of a micro-batch"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme
