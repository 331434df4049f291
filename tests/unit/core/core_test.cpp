// Files, TOML with places, hashes, checksums, dtypes, safetensors, messages and processes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/channel.h"
#include "core/crc32c.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/process.h"
#include "core/safetensors.h"
#include "core/toml.h"

namespace ak {
namespace {

using namespace std::chrono_literals;

TEST(Toml, KnowsWhereEachValueStands) {
  const std::string text =
      "# ünïcode first\n[tune]\nROWS = { values = [1, 2], default = 2, tier = 1 } # keep\n[[launch]]\ngrid = [\"cdiv(M, ROWS)\"]\n";
  std::map<std::string, TomlSpan> spans;
  const Json value = parse_toml(text, "kernel.cpp", &spans, 10);
  EXPECT_EQ(value["tune"]["ROWS"]["default"], 2);
  const TomlSpan span = spans.at("tune.ROWS.default");
  EXPECT_EQ(text.substr(span.begin, span.end - span.begin), "2");
  EXPECT_EQ(span.line, 12);
  const TomlSpan grid = spans.at("launch[0].grid[0]");
  EXPECT_EQ(text.substr(grid.begin, grid.end - grid.begin), "\"cdiv(M, ROWS)\"");
}

TEST(Toml, ErrorsNameFileAndLine) {
  try {
    parse_toml("a = 1\nb = [\n", "kernel.cpp", nullptr, 5);
    FAIL() << "a broken document parsed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("kernel.cpp:"), std::string::npos);
  }
  EXPECT_THROW(parse_toml("[\n", "f"), Error);
}

TEST(Toml, FormatsWhatItReads) {
  const Json value = {{"model", "a \"b\" c"}, {"shape", {1, 128}}, {"nested", {{"minutes", 2.5}}}};
  EXPECT_EQ(parse_toml(format_toml(value), "f"), value);
}

TEST(Crc32c, MatchesTheKnownCheckValue) { EXPECT_EQ(crc32c("123456789"), 0xe3069283u); }

TEST(Hash, DiffersWithContent) {
  EXPECT_EQ(content_hash("a").size(), 32u);
  EXPECT_NE(content_hash("a"), content_hash("b"));
  EXPECT_EQ(short_hash("a"), content_hash("a").substr(0, 8));
}

TEST(Dtype, HalfUlpIsHalfTheSpacing) {
  EXPECT_EQ(half_ulp(Dtype::float32, 1.0), std::ldexp(1.0, -24));
  EXPECT_EQ(half_ulp(Dtype::float32, -1.5), std::ldexp(1.0, -24));
  EXPECT_EQ(half_ulp(Dtype::float16, 0.0), std::ldexp(1.0, -25));
  EXPECT_EQ(half_ulp(Dtype::bfloat16, 256.0), 1.0);
  EXPECT_EQ(half_ulp(Dtype::int64, 3.0), 0.0);
  EXPECT_EQ(parse_dtype("bf16"), Dtype::bfloat16);
  EXPECT_THROW(parse_dtype("float13"), Error);
}

TEST(File, AWriteReplacesWholeOrNotAtAll) {
  TemporaryDirectory directory("ak-test-");
  const auto path = directory.path() / "a" / "b.txt";
  write_file(path, "one");
  write_file(path, "two");
  EXPECT_EQ(read_file(path), "two");
  std::error_code ignored;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path.parent_path()), {}), 1);
  EXPECT_THROW(read_file(directory.path() / "missing"), Error);
  EXPECT_THROW(write_file("/proc/version/x", "no"), Error);
}

TEST(File, ADirectoryThatCannotBeMadeIsTheReason) {
  try {
    write_file("/proc/nothing/x", "no");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot make the directory of /proc/nothing/x"), std::string::npos);
  }
}

TEST(File, AFullDiskIsSaidAndLosesNothing) {
  EXPECT_THROW(
      {
        try {
          write_file("/dev/full/x", "no");
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find("/dev/full"), std::string::npos);
          throw;
        }
      },
      Error);
}

TEST(FileLock, IsHeldByOne) {
  TemporaryDirectory directory("ak-test-");
  auto lock = FileLock::try_acquire(directory.path() / "lock");
  ASSERT_TRUE(lock);
  EXPECT_FALSE(FileLock::try_acquire(directory.path() / "lock"));
  lock.reset();
  EXPECT_TRUE(FileLock::try_acquire(directory.path() / "lock"));
}

TEST(TemporaryDirectory, WhatAKilledProcessLeftGoesAndWhatIsInUseStays) {
  const TemporaryDirectory used("ak-test-a-");
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t killed = ::fork();
  if (killed == 0) {
    const TemporaryDirectory left("ak-test-a-");
    const std::string path = left.path().string();
    ::_exit(::write(pipe[1], path.data(), path.size()) == static_cast<ssize_t>(path.size()) ? 0 : 1);  // no destructor runs
  }
  ::close(pipe[1]);
  std::array<char, 4096> path{};
  ASSERT_GT(::read(pipe[0], path.data(), path.size() - 1), 0);
  ::close(pipe[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(killed, &status, 0), killed);
  ASSERT_TRUE(std::filesystem::exists(path.data()));
  const TemporaryDirectory other("ak-test-b-");
  EXPECT_TRUE(std::filesystem::exists(path.data())) << "of another kind";
  const TemporaryDirectory next("ak-test-a-");
  EXPECT_FALSE(std::filesystem::exists(path.data()));
  EXPECT_TRUE(std::filesystem::exists(used.path()) && std::filesystem::exists(next.path()));
}

TEST(Safetensors, RoundTripsAndRefusesWhatDoesNotFit) {
  TemporaryDirectory directory("ak-test-");
  const auto path = directory.path() / "t.safetensors";
  const std::vector<float> values = {1.5f, -2.0f, 3.25f, 0.5f, 8.0f, -9.0f};
  const NamedTensor tensor{"x", Dtype::float32, {2, 3}, std::as_bytes(std::span(values))};
  write_safetensors(path, std::span(&tensor, 1), {{"x.offset", "4"}});
  {
    const auto file = SafetensorsFile::open(path);
    EXPECT_EQ(file.tensor("x").shape, (std::vector<int64_t>{2, 3}));
    EXPECT_TRUE(std::ranges::equal(file.tensor("x").data, std::as_bytes(std::span(values))));
    EXPECT_EQ(file.metadata("x.offset"), "4");
    EXPECT_THROW(file.tensor("y"), Error);
  }
  std::string bytes = read_file(path);
  bytes.resize(bytes.size() - 4);
  write_file(path, bytes);
  EXPECT_THROW(SafetensorsFile::open(path), Error);
  bytes[7] = '\x7f';
  write_file(path, bytes);
  EXPECT_THROW(SafetensorsFile::open(path), Error);
}

TEST(Channel, DeliversWholeMessagesAndNoticesTheEnd) {
  Pipe pipe = make_pipe();
  Channel channel(std::move(pipe.read_end), std::move(pipe.write_end));
  const Json sent = {{"text", std::string(30000, 'x') + "é"}, {"n", 3}};
  ASSERT_TRUE(channel.send(sent));
  Json received;
  EXPECT_EQ(channel.receive(received, 1s), Channel::Status::message);
  EXPECT_EQ(received, sent);
  EXPECT_EQ(channel.receive(received, 5ms), Channel::Status::timed_out);
  channel.close_output();
  EXPECT_EQ(channel.receive(received, 1s), Channel::Status::closed);
}

TEST(Process, ReportsHowAChildEnded) {
  EXPECT_EQ(run_command({.arguments = {"sh", "-c", "echo out; echo err >&2; exit 3"}}, 10s).status.code, 3);
  EXPECT_EQ(run_command({.arguments = {"sh", "-c", "echo out; echo err >&2"}}, 10s).output, "out\nerr\n");
  EXPECT_EQ(run_command({.arguments = {"sh", "-c", "kill -SEGV $$"}}, 10s).status.signal, SIGSEGV);
  EXPECT_TRUE(run_command({.arguments = {"sh", "-c", "sleep 100 & sleep 100"}}, 50ms).status.timed_out);
  EXPECT_THROW(run_command({.arguments = {"no-such-program"}}, 1s), Error);
}

TEST(Process, HandsDownDescriptorsAndLimits) {
  Pipe pipe = make_pipe();
  Process child = Process::start({.arguments = {"sh", "-c", "echo hello >&4"}, .descriptors = {{4, pipe.write_end.get()}}});
  pipe.write_end.reset();
  char text[16] = {};
  EXPECT_EQ(::read(pipe.read_end.get(), text, sizeof text), 6);
  EXPECT_STREQ(text, "hello\n");
  EXPECT_TRUE(child.wait(10s)->success());
  EXPECT_EQ(run_command({.arguments = {"sh", "-c", "ulimit -n"}, .open_files = 77}, 10s).output, "77\n");
}

TEST(Process, StandsStillUntilItIsResumed) {
  const Pipe lines = make_pipe();
  Process child = Process::start({.arguments = {"sh", "-c", "while :; do echo; done"}, .descriptors = {{1, lines.write_end.get()}}});
  char line = 0;
  ASSERT_EQ(::read(lines.read_end.get(), &line, 1), 1);
  const auto state = [&] {
    const std::string stat = read_file("/proc/" + std::to_string(child.pid()) + "/stat");
    return stat[stat.rfind(')') + 2];
  };
  child.stop();
  EXPECT_EQ(state(), 'T');
  child.resume();
  EXPECT_NE(state(), 'T');
  child.kill();
  child.stop();  // of what has ended
}

TEST(Process, DiesWithItsGroup) {
  Pipe pipe = make_pipe();
  {
    Process child = Process::start({.arguments = {"sh", "-c", "sleep 1000 & echo $!; wait"}, .descriptors = {{1, pipe.write_end.get()}}});
    pipe.write_end.reset();
    char text[32] = {};
    ASSERT_GT(::read(pipe.read_end.get(), text, sizeof text), 0);
  }
  char rest[8];
  EXPECT_EQ(::read(pipe.read_end.get(), rest, sizeof rest), 0);  // the grandchild held the other end, and is gone
}

}  // namespace
}  // namespace ak
