// The host with its built-in kernels: no candidate, no compiler.
#include "device/cpu/host.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "device/cpu/builtin.h"
#include "device/cpu/facts.h"

namespace ak::device::cpu {
namespace {

std::filesystem::path executable() { return std::filesystem::path(AK_BINARY_DIR) / "bin" / "autokernel-judge"; }

LaunchEntry entry(const char* name, int64_t blocks, int32_t arguments) {
  LaunchEntry result{};
  std::strcpy(result.kernel, name);
  result.blocks = blocks;
  result.argument_count = arguments;
  result.scratch_offset = -1;
  return result;
}

ArgumentEntry pointer(int64_t offset) { return {ArgumentEntry::arena_pointer, 0, offset}; }
ArgumentEntry integer(int64_t value) { return {ArgumentEntry::integer, 0, value}; }

TEST(Host, copies_what_lies_in_the_arena) {
  Host host(executable(), std::nullopt, 2);
  ASSERT_TRUE(host.load().ok());
  std::mt19937 random(3);
  for (const char* name : {"builtin.copy", "builtin.stream"}) {
    for (const int64_t bytes : {int64_t{1}, int64_t{63}, int64_t{4096}, int64_t{1'000'003}, int64_t{3 << 20}}) {
      auto arena = host.arena(8 << 20);
      std::vector<std::byte> content(static_cast<size_t>(bytes));
      for (std::byte& each : content) each = static_cast<std::byte>(random());
      std::copy(content.begin(), content.end(), arena.begin());
      std::fill(arena.begin() + (4 << 20), arena.end(), std::byte{0});
      Program program;
      program.arguments = {pointer(0), integer(bytes), pointer(4 << 20), integer(bytes), integer(7)};
      program.launches = {entry(name, 7, 5)};
      ASSERT_TRUE(host.install(program).ok());
      const Outcome outcome = host.launch(2, 10);
      ASSERT_TRUE(outcome.ok()) << outcome.text;
      EXPECT_GT(outcome.us, 0);
      EXPECT_TRUE(std::equal(content.begin(), content.end(), arena.begin() + (4 << 20))) << name << " " << bytes;
      EXPECT_EQ(arena[static_cast<size_t>((4 << 20) + bytes)], std::byte{0});
    }
  }
}

TEST(Host, reads_what_begins_at_any_byte) {
  Host host(executable(), std::nullopt, 2);
  ASSERT_TRUE(host.load().ok());
  host.arena(1 << 20);
  for (int64_t written = 0; written < 70; ++written) {  // the rest is only read, from there on
    Program program;
    program.arguments = {pointer(0), integer(512 << 10), pointer(768 << 10), integer(written), integer(1)};
    program.launches = {entry("builtin.copy", 1, 5)};
    ASSERT_TRUE(host.install(program).ok());
    const Outcome outcome = host.launch(1, 10);
    ASSERT_TRUE(outcome.ok()) << written << ": " << outcome.text;
  }
}

TEST(Host, zeroes_within_the_launch) {
  Host host(executable(), std::nullopt, 2);
  ASSERT_TRUE(host.load().ok());
  auto arena = host.arena(8192);
  std::fill(arena.begin(), arena.end(), std::byte{7});
  Program program;
  program.launches = {entry("builtin.empty", 3, 0)};
  program.zeros = {{100, 50}};
  ASSERT_TRUE(host.install(program).ok());
  ASSERT_TRUE(host.launch(1, 10).ok());
  for (size_t i = 0; i < 300; ++i) EXPECT_EQ(arena[i], i >= 100 && i < 150 ? std::byte{0} : std::byte{7}) << i;
}

TEST(Host, says_what_does_not_fit_and_lives_on) {
  Host host(executable(), std::nullopt, 1);
  ASSERT_TRUE(host.load().ok());
  host.arena(4096);
  Program program;
  program.launches = {entry("nobody", 1, 0)};
  EXPECT_EQ(host.install(program).kind, Outcome::Kind::does_not_fit);
}

TEST(Host, a_missing_module_cannot_be_loaded) {
  const TemporaryDirectory directory("autokernel-test-");
  write_file(directory.path() / "no.so", "this is no shared object");
  Host host(executable(), directory.path() / "no.so", 1);
  const Outcome outcome = host.load();
  EXPECT_EQ(outcome.kind, Outcome::Kind::cannot_load);
  EXPECT_FALSE(outcome.text.empty());
}

TEST(Host, a_launch_longer_than_its_time_is_ended) {
  Host host(executable(), std::nullopt, 1);
  ASSERT_TRUE(host.load().ok());
  host.arena(4096);
  Program program;
  program.arguments = {integer(int64_t{1} << 50)};
  program.launches = {entry("builtin.multiply", 1, 1)};
  ASSERT_TRUE(host.install(program).ok());
  EXPECT_EQ(host.launch(1, 0.2).kind, Outcome::Kind::timed_out);
  EXPECT_FALSE(host.alive());
}

TEST(Facts, are_those_of_a_machine) {
  const Bindings known = facts(3);
  EXPECT_EQ(known.at("workers"), 3);
  EXPECT_GE(known.at("l2_bytes"), 64 << 10);
  EXPECT_GE(available_cpus(), 1);
  EXPECT_GE(flush_bytes(), known.at("l2_bytes"));
  EXPECT_LE(flush_bytes(), 256 << 20);
}

}  // namespace
}  // namespace ak::device::cpu
