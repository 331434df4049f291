// The journal survives a kill at any byte, and every view of a run can be made again from it.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "core/file.h"
#include "store/journal.h"
#include "store/run.h"

namespace ak::store {
namespace {

namespace fs = std::filesystem;

kernel::Task small_task() {
  return kernel::task_from_json({{"schema", "autokernel.task/1"},
                                 {"id", "softmax_12345678"},
                                 {"family", "softmax"},
                                 {"dtype", "float32"},
                                 {"scalars", Json::object()},
                                 {"options", Json::object()},
                                 {"workload", {{{"dims", {{"M", 4}, {"N", 8}}}}}},
                                 {"tensors", {{{"name", "x"}, {"role", "data"}, {"dtype", "float32"}, {"shape", {"M", "N"}}}}}});
}

RunRequest request() { return {.model = "models/tiny.py:Tiny", .input_shape = {1, 16}}; }

Trial trial(const std::string& verdict, double us, const std::string& note = "ROWS 1→2") {
  return {.task = "softmax_12345678",
          .proposer = "coordinate",
          .note = note,
          .verdict = verdict,
          .point = {{"ROWS", 2}},
          .evidence = R"({"stage":2})",
          .median_us = us};
}

class StoreTest : public ::testing::Test {
 protected:
  store::Run open() { return store::Run::open(directory_.path() / "run", request(), clock_); }
  store::Run with_task() {
    store::Run run = open();
    run.add_task(small_task(), 40, {{"share", 0.4}}, "starter", kernel::Backend::cpu);
    run.record_baseline("softmax_12345678", {{{"eager", 20.0}, {"compile", 10.0}}, "compile", 10.0, 20.0, 4.0});
    return run;
  }
  std::string results() { return read_file(directory_.path() / "run" / "results.tsv"); }

  TemporaryDirectory directory_{"ak-test-"};
  SystemClock clock_;
};

TEST_F(StoreTest, AJournalCutAtAnyByteKeepsEveryWholeRecord) {
  const fs::path path = directory_.path() / "journal.jsonl";
  std::vector<size_t> ends = {0};
  {
    Journal journal = Journal::open(path);
    for (int i = 0; i < 8; ++i) {
      journal.append({{"type", "trial"}, {"i", i}, {"text", std::string(static_cast<size_t>(i * 3), 'x') + "\n\"é"}});
      ends.push_back(fs::file_size(path));
    }
  }
  const std::string whole = read_file(path);
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, cut);
    Journal journal = Journal::open(path);
    const auto expected = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), cut) - ends.begin() - 1);
    ASSERT_EQ(journal.records().size(), expected) << "cut at " << cut;
    ASSERT_EQ(fs::file_size(path), ends[expected]);
    journal.append({{"type", "after"}});
    ASSERT_EQ(Journal::open(path).records().size(), expected + 1);
  }
}

TEST_F(StoreTest, ADamagedByteEndsTheJournalThere) {
  const fs::path path = directory_.path() / "journal.jsonl";
  {
    Journal journal = Journal::open(path);
    for (int i = 0; i < 3; ++i) journal.append({{"type", "trial"}, {"value", 100 + i}});
  }
  std::string text = read_file(path);
  text[text.find("101")] = '7';
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  EXPECT_EQ(Journal::open(path).records().size(), 1u);
}

TEST_F(StoreTest, RecordsTrialsInOrderWithExactColumns) {
  store::Run run = with_task();
  EXPECT_EQ(run.record(trial("kept", 9), "first"), 1);
  EXPECT_EQ(run.record(trial("slower", 11, "a\ttab\nand line"), "second"), 2);
  EXPECT_EQ(run.record(trial("timed_out", 0), "third"), 3);
  EXPECT_EQ(run.record(trial("failed_environment", 0), "fourth"), 4);
  const std::string text = results();
  EXPECT_EQ(
      text.substr(0, text.find('\n')),
      "experiment\ttag\tkernel_type\tthroughput_tflops\tlatency_us\tpct_peak\tspeedup_vs_pytorch\tcorrectness\tpeak_vram_mb\tdescription");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 1 + 3);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\t'), 9 * 5);
  EXPECT_NE(text.find("\tTIMEOUT\t"), std::string::npos);
  EXPECT_EQ(read_file(run.best_path("softmax_12345678")), "first");
  EXPECT_EQ(run.state("softmax_12345678").incumbent->experiment, 1);
  EXPECT_TRUE(run.state("softmax_12345678").beats_baseline());
}

TEST_F(StoreTest, ARefusedIncumbentBeatsNothingUntilThereIsAnother) {
  {
    store::Run run = with_task();
    run.record(trial("kept", 9), "first");
    run.record_refusal("softmax_12345678", {{"verdict", "wrong"}});
    EXPECT_FALSE(run.state("softmax_12345678").beats_baseline());
  }
  store::Run run = with_task();
  EXPECT_FALSE(run.state("softmax_12345678").beats_baseline());
  run.record(trial("kept", 8), "second");
  EXPECT_TRUE(run.state("softmax_12345678").beats_baseline());
}

TEST_F(StoreTest, ResumesWithEveryTrialOnce) {
  std::string before;
  {
    store::Run run = with_task();
    run.record(trial("kept", 9), "first");
    run.record(trial("kept", 8), "second");
    run.move_on("softmax_12345678", "plateau");
    before = results();
  }
  fs::remove(directory_.path() / "run" / "results.tsv");
  write_file(directory_.path() / "run" / "tasks" / "softmax_12345678" / "best.cpp", "a half-written view");
  store::Run run = open();
  EXPECT_TRUE(run.resumed());
  EXPECT_EQ(results(), before);
  EXPECT_EQ(run.experiments(), 2);
  EXPECT_EQ(read_file(run.best_path("softmax_12345678")), "second");
  EXPECT_EQ(run.state("softmax_12345678").moved_on, "plateau");
  EXPECT_EQ(run.record(trial("slower", 8), "third"), 3);
  EXPECT_EQ(run.state("softmax_12345678").baseline->best_kind, "compile");
}

TEST_F(StoreTest, RevertPutsTheIncumbentBack) {
  store::Run run = with_task();
  write_file(run.kernel_path("softmax_12345678"), "an edit");
  run.revert("softmax_12345678");
  EXPECT_EQ(read_file(run.kernel_path("softmax_12345678")), "starter");
}

TEST_F(StoreTest, HasOneOwnerButAnyNumberOfReaders) {
  store::Run run = with_task();
  EXPECT_THROW(open(), Error);
  EXPECT_EQ(store::Run::read_only(directory_.path() / "run", clock_).task_ids().size(), 1u);
}

TEST_F(StoreTest, RefusesAnotherRequestAndAnotherFormat) {
  { store::Run run = with_task(); }
  RunRequest other = request();
  other.dtype = "float16";
  EXPECT_THROW(store::Run::open(directory_.path() / "run", other, clock_), Error);
  const fs::path toml = directory_.path() / "run" / "run.toml";
  std::string text = read_file(toml);
  text.replace(text.find("format = 1"), 10, "format = 9");
  write_file(toml, text);
  try {
    open();
    FAIL() << "another format was opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("format 9"), std::string::npos);
    EXPECT_FALSE(error.what_to_do().empty());
  }
}

TEST_F(StoreTest, ARecordOfAnotherVersionIsNamedAndKept) {
  { store::Run run = with_task(); }
  const fs::path path = directory_.path() / "run" / "journal.jsonl";
  { Journal::open(path).append({{"type", "trial"}, {"task", "softmax_12345678"}}); }
  const std::string before = read_file(path);
  try {
    open();
    ADD_FAILURE() << "it opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("record 4 of"), std::string::npos) << error.what();
    EXPECT_NE(error.what_to_do().find("--fresh"), std::string::npos);
  }
  EXPECT_EQ(read_file(path), before);
}

TEST_F(StoreTest, UnknownTasksAreNamedWithTheKnown) {
  store::Run run = with_task();
  try {
    run.state("softmax_zzz");
    FAIL() << "an unknown task was found";
  } catch (const Error& error) {
    EXPECT_NE(error.what_to_do().find("softmax_12345678"), std::string::npos);
  }
}

TEST(DefaultDirectory, IsTheSameForTheSameRequestOnly) {
  const fs::path first = store::Run::default_directory(request());
  EXPECT_EQ(first, store::Run::default_directory(request()));
  RunRequest other = request();
  other.input_shape = {1, 32};
  EXPECT_NE(first, store::Run::default_directory(other));
  EXPECT_EQ(first.string().rfind("autokernel-runs/tiny-Tiny-", 0), 0u);
}

TEST(Baseline, knows_the_best_of_what_was_added) {
  Baseline baseline;
  baseline.add("eager", 20);
  EXPECT_EQ(baseline.best_kind, "eager");
  baseline.add("compile", 10);
  baseline.add("library", 12);
  EXPECT_EQ(baseline.best_kind, "compile");
  EXPECT_EQ(baseline.best_us, 10);
  EXPECT_EQ(baseline.kinds_us.size(), 3u);
}

}  // namespace
}  // namespace ak::store
