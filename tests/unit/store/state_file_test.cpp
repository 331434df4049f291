// A state file goes on elsewhere, never backwards, never over another's work, and never outside the run.
#include "store/state_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "core/error.h"
#include "core/file.h"
#include "store/archive.h"
#include "store/run.h"

namespace ak::store {
namespace {

namespace fs = std::filesystem;

class StateFileTest : public ::testing::Test {
 protected:
  fs::path at(const std::string& name) const { return directory_.path() / name; }
  store::Run open(const std::string& name, const std::string& model = "/here/llama.py:Llama") {
    return store::Run::open(at(name), {.model = model}, clock_);
  }
  void restore(const std::string& name, const std::string& model = {}) { read_state(at("state"), at(name), at("modules"), model); }

  SystemClock clock_;
  TemporaryDirectory directory_{"ak-test-"};
};

TEST_F(StateFileTest, AnotherMachineGoesOn) {
  {
    store::Run run = open("first");
    run.record_event({{"type", "note"}, {"text", "one"}});
    write_file(at("first/tasks/a_1/history/0001.cu"), "kernel one");
    write_file(at("first/worker.log"), "what nobody needs");
    write_file(at("cubins/abc.cubin"), std::string(1000, 'c'));
    EXPECT_TRUE(write_state(at("first"), at("state"), {at("cubins/abc.cubin")}).empty());
  }
  restore("second", "/there/llama.py:Llama");
  EXPECT_EQ(read_file(at("second/tasks/a_1/history/0001.cu")), "kernel one");
  EXPECT_EQ(read_file(at("second/journal.jsonl")), read_file(at("first/journal.jsonl")));
  EXPECT_EQ(read_file(at("modules/abc.cubin")), std::string(1000, 'c'));
  EXPECT_FALSE(fs::exists(at("second/worker.log")));
  EXPECT_FALSE(fs::exists(at("second/lock")));
  EXPECT_TRUE(open("second", "/there/llama.py:Llama").resumed());
}

TEST_F(StateFileTest, WhatIsFurtherStaysAndWhatWentAnotherWayIsRefused) {
  {
    const store::Run run = open("first");
    write_state(at("first"), at("state"));
  }
  restore("second");
  {
    store::Run further = open("second");
    further.record_event({{"type", "note"}, {"text", "further"}});
  }
  const std::string before = read_file(at("second/journal.jsonl"));
  restore("second");
  EXPECT_EQ(read_file(at("second/journal.jsonl")), before);
  {
    store::Run other_way = open("first");
    other_way.record_event({{"type", "note"}, {"text", "another way"}});
  }
  write_state(at("first"), at("state"));
  EXPECT_THROW(restore("second"), Error);
  EXPECT_EQ(read_file(at("second/journal.jsonl")), before);
  restore("first");
}

TEST_F(StateFileTest, IsNeverLargerThanItMayBe) {
  { const store::Run run = open("first"); }
  std::mt19937_64 random(1);
  std::string noise(7 << 20, '\0');
  for (char& c : noise) c = static_cast<char>(random());
  write_file(at("cubins/abc.cubin"), noise);
  write_file(at("first/tasks/a_1/history/0001.cu"), noise);
  write_file(at("first/bundles/a_1/kernel.cubin"), noise);
  EXPECT_EQ(write_state(at("first"), at("state"), {at("cubins/abc.cubin")}), (std::vector<std::string>{"compiled kernels"}));
  EXPECT_LE(static_cast<int64_t>(fs::file_size(at("state"))), largest_state);
  EXPECT_GT(static_cast<int64_t>(fs::file_size(at("state"))), int64_t{14} << 20);
  write_file(at("first/graph.json"), noise + noise + noise);
  const std::string last = read_file(at("state"));
  EXPECT_THROW(write_state(at("first"), at("state")), Error);
  EXPECT_EQ(read_file(at("state")), last);
}

TEST_F(StateFileTest, WhatIsNoStateIsRefused) {
  restore("nothing");  // there is no file yet
  EXPECT_FALSE(fs::exists(at("nothing")));
  write_file(at("state"), std::string(5000, 'x'));
  EXPECT_THROW(restore("second"), Error);
  fs::remove(at("state"));
  write_archive(at("state"), {{"journal.jsonl", pack("")}});
  EXPECT_THROW(restore("second"), Error);
  fs::remove(at("state"));
  write_archive(at("state"), {{"journal.jsonl", pack("{}\n")}, {"run.toml", pack("")}, {"../outside", pack("x")}});
  EXPECT_THROW(restore("second"), Error);
  EXPECT_FALSE(fs::exists(at("outside")));
  Packed damaged = pack(std::string(1000, 'a'));
  damaged.data[3] ^= 1;
  EXPECT_THROW(unpack(damaged), Error);
}

}  // namespace
}  // namespace ak::store
