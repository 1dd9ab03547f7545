// Every operator that has a rule, on mesh tensors in many layouts, gives what it gives on plain ones.
//
// TRIREME_RULES=TEXT tries the operators whose names contain TEXT alone. With TRIREME_WRITE_OPERATORS=1 it writes
// docs/mesh_operators.md; otherwise a page that is out of date is a failure.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "numerics/mesh_rules/proof.h"
#include "support/paths.h"
#include "trireme/layout/operator.h"
#include "trireme/tensor/decision.h"

namespace trireme {
namespace {

std::string only() {
  const char* text = std::getenv("TRIREME_RULES");
  return text == nullptr ? "" : text;
}

const std::vector<OperatorProof>& proofs() {
  static const std::vector<OperatorProof> all = [] {
    at::set_num_threads(1);
    return prove_rules({.only = only(), .lines = {}});
  }();
  return all;
}

TEST(MeshRules, AreProven) {
  for (const OperatorProof& proof : proofs()) EXPECT_EQ(proof.error, "") << proof.name;
}

TEST(MeshRules, CoverWhatPeopleUse) {
  if (!only().empty()) GTEST_SKIP() << "some operators only";
  int own = 0, with_gradient = 0;
  for (const OperatorProof& proof : proofs()) {
    own += proof.cases > 0 && !proof.is_made_of_others ? 1 : 0;
    with_gradient += proof.gradients > 0 ? 1 : 0;
    EXPECT_TRUE(proof.needs_gpu || proof.without_moving > 0) << proof.name << " always moves its inputs";
  }
  EXPECT_GE(own, 400);
  EXPECT_GE(with_gradient, 300);
}

TEST(MeshRules, AreListedInTheDocuments) {
  if (!only().empty()) GTEST_SKIP() << "some operators only";
  const std::string path = source_path("docs/mesh_operators.md");
  if (std::getenv("TRIREME_WRITE_OPERATORS")) std::ofstream(path) << operator_page(proofs());
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), operator_page(proofs())) << "out of date: run this test with TRIREME_WRITE_OPERATORS=1";
}

TEST(MeshRules, MissingAndUnknownOnesAreReported) {
  ProofOptions options;
  options.meshes = {"tp=2"};
  options.only = "det";
  options.lines = {"-logdet p[3,3]", "-linalg_det p[3,3]", "undetermined x[3]"};
  const std::vector<OperatorProof> found = prove_rules(options);
  ASSERT_EQ(found.size(), 4u);  // and detach, which nobody calls here
  for (const OperatorProof& proof : found) EXPECT_NE(proof.error, "") << proof.name;
}

}  // namespace
}  // namespace trireme
