// A sample of what goes with what; composition_many tries everything.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "numerics/composition_cases.h"
#include "support/paths.h"
#include "trireme/train/trainer.h"

namespace trireme {
namespace {

TEST(Composition, ASampleTrainsOrIsRefused) {
  std::map<Composed, Outcome> references;
  const std::vector<Composed> all = all_composed();
  int trained = 0, refused = 0;
  for (size_t i = 0; i < all.size(); i += 11) {
    SCOPED_TRACE(all[i].to_string());
    (verdict_of(all[i], references).starts_with("refused") ? refused : trained) += 1;
  }
  EXPECT_GT(trained, 10);
  EXPECT_GT(refused, 5);
}

TEST(Composition, ThePageListsTheRules) {
  std::stringstream page;
  page << std::ifstream(source_path("docs/composition.md")).rdbuf();
  EXPECT_TRUE(page.str().ends_with(rules_text()))
      << "out of date: TRIREME_WRITE_COMPOSITION=1 numerics_tests --gtest_filter=CompositionMany.*, or put this at its "
         "end:\n"
      << rules_text();
}

}  // namespace
}  // namespace trireme
