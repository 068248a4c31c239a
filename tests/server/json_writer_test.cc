#include "server/api/json_writer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace rigel::server {
namespace {

TEST(JsonWriter, WritesNestedValuesWithCommasWhereTheyBelong) {
  JsonWriter json;
  json.begin_object()
      .field("a", 1)
      .key("b")
      .begin_array()
      .value(true)
      .value(nullptr)
      .begin_object()
      .end_object();
  json.begin_array().end_array().end_array().field("c", "text").key("d").raw("[1]").end_object();
  EXPECT_EQ(json.text(), R"({"a":1,"b":[true,null,{},[]],"c":"text","d":[1]})");
}

TEST(JsonWriter, WritesNumbersThatReadBackTheSame) {
  JsonWriter json;
  json.begin_array()
      .value(std::int64_t{-9007199254740993})
      .value(~std::uint64_t{0})
      .value(0.1f)
      .value(1e-7);
  json.value(std::nan("")).value(-INFINITY).end_array();
  EXPECT_EQ(json.text(), "[-9007199254740993,18446744073709551615,0.1,1e-07,null,null]");
}

TEST(JsonWriter, EscapesWhatMustBeAndReplacesWhatIsNoUtf8) {
  JsonWriter json;
  json.value(std::string_view("\"\\\n\t\x01\x7f \xC3\xA9 \xF0\x9F\x98\x80 \xC3( \xED\xA0\x80", 21));
  EXPECT_EQ(json.text(),
            "\"\\\"\\\\\\n\\t\\u0001\\u007f \xC3\xA9 \xF0\x9F\x98\x80 \xEF\xBF\xBD( "
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace rigel::server
