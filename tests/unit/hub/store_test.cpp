#include "hub/store.h"

#include <cstdlib>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unit/hub/temp_dir.h"

namespace trine::hub {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

Manifest manifest_of(const std::string& name, const std::string& content = "data") {
  Sha256 hash;
  hash.update(content);
  Manifest out;
  out.name = name;
  out.source = "hf:a/" + name + ":m.gguf";
  out.revision = "0123";
  out.format = "gguf";
  out.entry = "m.gguf";
  out.license = {"mit", "https://x", {"licenses/L"}};
  out.created_unix_s = 1'700'000'000;
  out.files = {{"m.gguf", content.size(), hash.finish()}};
  return out;
}

class StoreTest : public testing::Test {
 protected:
  void put(const std::string& name, const std::string& content = "data") {
    write_text(store_.incoming_dir(name) / "m.gguf", content);
    ASSERT_TRUE(store_.commit(manifest_of(name, content)).has_value());
  }

  TempDir dir_;
  Store store_{dir_.path() / "home"};
};

TEST(ManifestTest, RoundTrip) {
  const Manifest manifest = manifest_of("m");
  EXPECT_EQ(manifest_from_json(manifest_to_json(manifest)).value(), manifest);
}

TEST(ManifestTest, DamageIsNamed) {
  const std::string good = manifest_to_json(manifest_of("m"));
  const auto damaged = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const Result<Manifest> manifest = manifest_from_json(text);
    return manifest.has_value() ? "" : manifest.error().message;
  };
  EXPECT_THAT(damaged("\"schema\": 1", "\"schema\": 2"), HasSubstr("another version"));
  EXPECT_THAT(damaged("\"name\": \"m\"", "\"name\": \"../m\""), HasSubstr("not a model name"));
  EXPECT_THAT(damaged("\"source\"", "\"sauce\""), HasSubstr("source"));
  EXPECT_THAT(damaged("\"name\": \"m.gguf\"", "\"name\": \"../m.gguf\""), HasSubstr("unsafe"));
  EXPECT_THAT(damaged("\"size\": 4", "\"size\": -4"), HasSubstr("size of m.gguf"));
  EXPECT_THAT(damaged("\"sha256\": \"", "\"sha256\": \"x"), HasSubstr("sha256 of m.gguf"));
  EXPECT_THAT(damaged("\"entry\": \"m.gguf\"", "\"entry\": \"n.gguf\""),
              HasSubstr("none of its files"));
  EXPECT_THAT(damaged("licenses/L", "/L"), HasSubstr("unsafe"));
  EXPECT_FALSE(manifest_from_json("").has_value());
  EXPECT_FALSE(manifest_from_json("[]").has_value());
}

TEST_F(StoreTest, CommitListFindRemove) {
  EXPECT_TRUE(store_.list()->models.empty());
  EXPECT_FALSE(store_.find("b")->has_value());
  put("b");
  put("a");
  const Store::Listing listing = store_.list().value();
  ASSERT_EQ(listing.models.size(), 2U);
  EXPECT_EQ(listing.models[0].name, "a");
  EXPECT_TRUE(listing.problems.empty());
  EXPECT_TRUE(listing.interrupted.empty());
  EXPECT_EQ(store_.find("b").value(), manifest_of("b"));
  EXPECT_EQ(store_.find_source("hf:a/b:m.gguf").value()->name, "b");
  EXPECT_GT(store_.remove("b").value(), 4U);
  EXPECT_FALSE(fs::exists(store_.model_dir("b")));
  EXPECT_TRUE(fs::exists(store_.model_dir("a")));
  EXPECT_EQ(store_.remove("b").error().code, ErrorCode::kNotFound);
}

TEST_F(StoreTest, CommitReplacesInOneStep) {
  put("m", "old");
  put("m", "newer");
  EXPECT_EQ(read_text(store_.model_dir("m") / "m.gguf"), "newer");
  EXPECT_FALSE(fs::exists(store_.incoming_dir("m")));
  EXPECT_TRUE(store_.check_complete(**store_.find("m")).has_value());
}

TEST_F(StoreTest, RemoveStaysInside) {
  write_text(dir_.path() / "outside" / "keep", "x");
  for (const char* name : {"..", "../outside", "a/b", "", "."}) {
    EXPECT_FALSE(store_.remove(name).has_value()) << name;
  }
  fs::create_directories(store_.root() / "models");
  fs::create_directory_symlink(dir_.path() / "outside", store_.model_dir("link"));
  EXPECT_EQ(store_.remove("link").error().code, ErrorCode::kInvalidArgument);
  put("m");
  fs::create_directory_symlink(dir_.path() / "outside", store_.model_dir("m") / "link");
  EXPECT_TRUE(store_.remove("m").has_value());
  EXPECT_TRUE(fs::exists(dir_.path() / "outside" / "keep"));
}

TEST_F(StoreTest, RemoveTakesUnfinishedDownloads) {
  write_text(store_.incoming_dir("m") / "m.gguf.part", "half");
  EXPECT_THAT(store_.list()->interrupted, ElementsAre("m"));
  EXPECT_EQ(store_.remove("m").value(), 4U);
  EXPECT_TRUE(store_.list()->interrupted.empty());
}

TEST_F(StoreTest, DamagedModelsAreProblemsNotErrors) {
  put("a");
  put("b");
  write_text(store_.model_dir("b") / "manifest.json", "{");
  fs::create_directories(store_.model_dir("c"));
  fs::rename(store_.model_dir("a"), store_.model_dir("d"));
  const Store::Listing listing = store_.list().value();
  EXPECT_TRUE(listing.models.empty());
  EXPECT_EQ(listing.problems.size(), 3U);
  EXPECT_FALSE(store_.find("b").has_value());
  EXPECT_THAT(store_.find("d").error().message, HasSubstr("renamed by hand"));
}

TEST_F(StoreTest, LockExcludes) {
  std::optional<StoreLock> held = store_.lock("m", true, nullptr).value();
  const Result<StoreLock> second = store_.lock("m", false, nullptr);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(store_.lock("other", false, nullptr).has_value());
  // A waiting one says for whom, and stops when cancelled.
  std::atomic<bool> cancel = false;
  int waited_for = 0;
  const Result<StoreLock> third = store_.lock("m", true, &cancel, [&](int pid) {
    waited_for = pid;
    cancel = true;
  });
  ASSERT_FALSE(third.has_value());
  EXPECT_EQ(third.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(waited_for, ::getpid());
  EXPECT_EQ(store_.remove("m").error().code, ErrorCode::kUnavailable);
  held.reset();
  EXPECT_TRUE(store_.lock("m", false, nullptr).has_value());
}

TEST_F(StoreTest, ResolveStoredNamesAndReferences) {
  put("m");
  const std::string path = (store_.model_dir("m") / "m.gguf").string();
  EXPECT_EQ(store_.resolve("m").value(), path);
  EXPECT_EQ(store_.resolve("hf:a/m:m.gguf").value(), path);
  EXPECT_EQ(store_.resolve("hf:a/m@main:m.gguf").value(), path);
  EXPECT_THAT(store_.resolve("hf:a/m").error().message, HasSubstr("trine pull hf:a/m"));
  EXPECT_THAT(store_.resolve("smollm2-135m").error().message, HasSubstr("trine pull smollm2-135m"));
  const Error unknown = store_.resolve("nothing-like-it").error();
  EXPECT_EQ(unknown.code, ErrorCode::kNotFound);
  EXPECT_THAT(unknown.message, HasSubstr("smollm2-135m, gemma3-270m"));
  EXPECT_EQ(store_.resolve("hf:x").error().code, ErrorCode::kInvalidArgument);
}

TEST_F(StoreTest, ResolveRefusesIncompleteModels) {
  put("m");
  write_text(store_.model_dir("m") / "m.gguf", "dat");
  const Error error = store_.resolve("m").error();
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message, HasSubstr("m.gguf is 3 bytes, its manifest says 4 bytes"));
  fs::remove(store_.model_dir("m") / "m.gguf");
  EXPECT_THAT(store_.resolve("m").error().message, HasSubstr("missing"));
}

TEST_F(StoreTest, ResolvePaths) {
  const fs::path file = dir_.path() / "x.gguf";
  EXPECT_EQ(store_.resolve(file.string()).error().code, ErrorCode::kNotFound);
  write_text(file, "x");
  EXPECT_EQ(store_.resolve(file.string()).value(), file.string());
  EXPECT_EQ(store_.resolve(dir_.path().string()).value(), dir_.path().string());
}

TEST(StoreHomeTest, OrderOfPlaces) {
  ::setenv("XDG_CACHE_HOME", "/xdg", 1);
  ::setenv("HOME", "/user", 1);
  EXPECT_EQ(Store::open("/given")->root(), "/given");
  EXPECT_EQ(Store::open("~/models")->root(), "/user/models");
  EXPECT_EQ(Store::open("")->root(), "/xdg/trine");
  ::setenv("XDG_CACHE_HOME", "relative", 1);  // the XDG rules say: ignore
  EXPECT_EQ(Store::open("")->root(), "/user/.cache/trine");
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  EXPECT_FALSE(Store::open("").has_value());
}

}  // namespace
}  // namespace trine::hub
