#include "eval/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/provenance.h"

namespace trine::eval {
namespace {

using ::testing::HasSubstr;

TEST(ParseDocuments, PlainTextIsOne) {
  const auto documents = parse_documents("{\"text\": 1}\n", "notes.txt");
  ASSERT_TRUE(documents.has_value());
  ASSERT_EQ(documents->size(), 1U);
  EXPECT_EQ((*documents)[0].text, "{\"text\": 1}\n");
}

TEST(ParseDocuments, JsonlIsOneALine) {
  const auto documents = parse_documents(
      "{\"text\": \"a\\nb\", \"id\": 4}\r\n\n{\"messages\": [{\"role\": \"user\", \"content\": "
      "\"c\"}]}",
      "t.jsonl");
  ASSERT_TRUE(documents.has_value()) << documents.error().message;
  ASSERT_EQ(documents->size(), 2U);
  EXPECT_EQ((*documents)[0].text, "a\nb");
  EXPECT_EQ((*documents)[1].line, 3);
  EXPECT_EQ((*documents)[1].messages, R"([{"role":"user","content":"c"}])");
  EXPECT_TRUE(parse_documents("", "t.jsonl")->empty());
}

TEST(ParseDocuments, ErrorsNameLineAndField) {
  const std::pair<std::string, std::string> cases[] = {
      {"[1]", "t.jsonl:1: an object with \"text\" or \"messages\" is expected"},
      {"{}", "t.jsonl:1: an object with"},
      {"{\"text\": \"a\", \"messages\": []}", "t.jsonl:1: an object with"},
      {"\n{\"text\": 4}", "t.jsonl:2: \"text\" is number"},
      {"{\"messages\": []}", "t.jsonl:1: \"messages\" is empty"},
      {"{\"messages\": \"x\"}", "t.jsonl:1: \"messages\" is string"},
      {"{\"text\": ", "t.jsonl:1: "},
  };
  for (const auto& [text, message] : cases) {
    const auto documents = parse_documents(text, "t.jsonl");
    ASSERT_FALSE(documents.has_value()) << text;
    EXPECT_THAT(documents.error().message, HasSubstr(message));
  }
}

TEST(Provenance, SaysWhichFilesCalibrated) {
  const auto origin = parse_calibration_origin(
      R"({"quantizer": "trine", "calibration": {"hash": "h", "tokens": 9, "files":
         [{"file": "a.jsonl", "sha256": "00", "texts": 1}, {"file": "b.txt", "sha256": "11"}]}})");
  ASSERT_TRUE(origin.has_value()) << origin.error().message;
  EXPECT_EQ(origin->hash, "h");
  ASSERT_EQ(origin->files.size(), 2U);
  EXPECT_EQ(origin->files[1].name, "b.txt");
  EXPECT_EQ(origin->files[1].sha256, "11");
  EXPECT_TRUE(parse_calibration_origin(R"({"method": "rtn"})")->hash.empty());
}

TEST(Provenance, BrokenRecordsAreNamed) {
  for (const auto& [text, message] :
       {std::pair(R"({"calibration": 4})", "\"hash\""),
        std::pair(R"({"calibration": {"hash": "h"}})", "\"files\""),
        std::pair(R"({"calibration": {"hash": "h", "files": [{"file": "a"}]}})", "\"files\""),
        std::pair("{", "JSON")}) {
    const auto origin = parse_calibration_origin(text);
    ASSERT_FALSE(origin.has_value()) << text;
    EXPECT_THAT(origin.error().message, HasSubstr(message));
  }
}

}  // namespace
}  // namespace trine::eval
