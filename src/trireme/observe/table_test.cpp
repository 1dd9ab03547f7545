// Alignment by width on the screen, and the three forms of a table.
#include "trireme/observe/table.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

Table example_table() {
  Table table({"algorithm", "cost", "time"});
  table.add_row({"ring", "α·2(N−1)", "9.8 ms"});
  table.add_row({"in place", "2 barriers", "10.1 ms"});
  table.add_row({"none", "", "-"});
  return table;
}

TEST(Table, Text) {
  EXPECT_EQ(example_table().to_text(),
            "algorithm  cost           time\n"
            "ring       α·2(N−1)     9.8 ms\n"
            "in place   2 barriers  10.1 ms\n"
            "none                         -\n");
}

TEST(Table, RuleIndentAndBold) {
  Table table({"a", "bb"});
  table.add_row({"x"});
  EXPECT_EQ(table.to_text({.rule = true, .indent = 2}), "  a  bb\n  ─  ──\n  x\n");
  EXPECT_EQ(table.to_text({.bold_header = true}), "\x1b[1ma  bb\x1b[0m\nx\n");
}

TEST(Table, ChosenAlignmentWins) {
  Table table({{"n", Align::kLeft}, {"name", Align::kRight}});
  table.add_row({"100", "a"});
  table.add_row({"5", "bcdef"});
  EXPECT_EQ(table.to_text(), "n     name\n100      a\n5    bcdef\n");
}

TEST(Table, Markdown) {
  Table table({"name", "us"});
  table.add_row({"a|b", "1.5"});
  table.add_row({"µ", "10"});
  EXPECT_EQ(table.to_markdown(),
            "| name |  us |\n"
            "| ---- | --: |\n"
            "| a\\|b | 1.5 |\n"
            "| µ    |  10 |\n");
}

TEST(Table, Html) {
  Table table({"a<b", "n"});
  table.add_row({"x & \"y\"", "1"});
  EXPECT_EQ(table.to_html(),
            "<table>\n<thead><tr><th>a&lt;b</th><th class=\"number\">n</th></tr></thead>\n<tbody>\n"
            "<tr><td>x &amp; &quot;y&quot;</td><td class=\"number\">1</td></tr>\n</tbody>\n</table>\n");
}

TEST(Table, RowsFitTheColumns) {
  Table table({"a"});
  EXPECT_TRUE(table.empty());
  EXPECT_THROW(table.add_row({"1", "2"}), UsageError);
  table.add_row({"one\ntwo"});
  EXPECT_EQ(table.to_text(), "a\none two\n");
  EXPECT_EQ(table.num_rows(), 1u);
}

TEST(Table, EscapeLeavesNoControlCharacters) { EXPECT_EQ(escape_html("a\x01'\n"), "a &#39;\n"); }

}  // namespace
}  // namespace trireme
