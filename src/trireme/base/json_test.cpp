#include "trireme/base/json.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(JsonFault, SaysWhereAndWhatWasExpected) {
  EXPECT_EQ(json_fault("{\"a\": [1, 2]}"), "");
  EXPECT_EQ(json_fault("{\n  \"a\": 1\n  \"b\": 2\n}"),
            "line 3, column 3: a ',' or a '}' is expected, and here is '\"'");
  EXPECT_EQ(json_fault("{\"a\": 1,\n}"), "line 2, column 1: a name in double quotes is expected, and here is '}'");
  EXPECT_EQ(json_fault("{\"a\" 1}"), "line 1, column 6: a ':' between name and value is expected, and here is '1'");
  EXPECT_EQ(json_fault("[1 23]"), "line 1, column 4: a ',' or a ']' is expected, and here is '2'");
  EXPECT_EQ(json_fault("{\"a\": tru}").substr(0, 26), "line 1, column 7: a value:");
  EXPECT_EQ(json_fault("{\"a\": @}").substr(0, 26), "line 1, column 7: a value:");
  EXPECT_EQ(json_fault("{"), "line 1, column 2: a name in double quotes is expected, and the text ends here");
  EXPECT_EQ(json_fault("").substr(0, 26), "line 1, column 1: a value:");
  EXPECT_EQ(json_fault("{}\n{}"), "line 2, column 1: the end of the file is expected, and here is '{'");
  EXPECT_EQ(json_fault("{\"a\n"),
            "line 1, column 4: a text without line breaks and unknown escapes is expected, and "
            "the line ends here");
  EXPECT_EQ(json_fault("{\"a"), "line 1, column 4: the quote that closes a text is expected, and the text ends here");
  EXPECT_EQ(json_fault("{\"a\": 1e999}"),
            "line 1, column 7: a number that 64 bits can hold is expected, and here is '1'");
}

TEST(JsonFault, HasNoWordsOfTheParser) {
  for (const char* text : {"{", "[1,", "nul", "{\"a\": -}", "\"\\x\"", "\xff", "[1e999]", "{1: 2}", "{\"a\": 1}}"}) {
    EXPECT_NE(json_fault(text), "") << text;
    EXPECT_EQ(json_fault(text).find("json"), std::string::npos) << json_fault(text);
  }
}

}  // namespace
}  // namespace trireme
