// Every operator that has a rule, on mesh tensors in many layouts, gives what it gives on plain ones.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "support/paths.h"
#include "trireme/layout/operator.h"
#include "trireme/tensor/decision.h"
#include "trireme/tensor/proof.h"

namespace trireme {
namespace {

const std::vector<OperatorProof>& proofs() {
  static const std::vector<OperatorProof> all = [] {
    at::set_num_threads(1);
    return prove_rules();
  }();
  return all;
}

TEST(MeshRules, AreProven) {
  for (const OperatorProof& proof : proofs()) EXPECT_EQ(proof.error, "") << proof.name;
}

TEST(MeshRules, CoverWhatPeopleUse) {
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
  std::ifstream file(source_path("docs/mesh_operators.md"));
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), operator_page(proofs()))
      << "write it anew: trireme bench tensor --rules --markdown > docs/mesh_operators.md";
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
