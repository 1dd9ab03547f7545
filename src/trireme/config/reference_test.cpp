#include "trireme/config/reference.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "support/paths.h"
#include "trireme/config/key.h"

namespace trireme {
namespace {

TEST(Reference, PageInTheTreeIsTheOneMadeFromTheTable) {
  std::ifstream file(source_path("docs/config.md"), std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == config_reference_markdown())
      << "docs/config.md is out of date; rewrite it: trireme train --config-reference > docs/config.md";
}

TEST(Reference, HasEveryKey) {
  const std::string page = config_reference_markdown();
  for (const Key& key : keys()) {
    EXPECT_NE(page.find("| `" + std::string(key.name) + "` |"), std::string::npos) << key.full_name();
  }
}

}  // namespace
}  // namespace trireme
