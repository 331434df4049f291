// The loops behind floors and ceilings; the compiler makes a version for each generation of CPU.
#include "device/cpu/builtin.h"

#include <algorithm>
#include <cstring>

namespace ak::device::cpu {
namespace {

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define AK_EVERY_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define AK_EVERY_CPU
#endif

template <class A>
A argument(void* const* arguments, int index) {
  A value;
  std::memcpy(&value, arguments[index], sizeof value);
  return value;
}

constexpr int64_t line_bytes = 64;
constexpr int words_per_line = 8;
constexpr int64_t bytes_ahead = 4 << 10;  // past the page where hardware prefetchers stop

typedef int64_t Line __attribute__((vector_size(64)));

AK_EVERY_CPU int64_t sum_of(const char* source, int64_t bytes) {
  Line total[4] = {}, next;
  int64_t at = 0;
  for (; at + 4 * line_bytes <= bytes; at += 4 * line_bytes) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      const char* const from = source + at + u * line_bytes;
      __builtin_prefetch(from + bytes_ahead);
      std::memcpy(&next, from, sizeof next);  // no vector is read in its place: it may begin at any byte
      total[u] ^= next;
    }
  }
  for (; at + line_bytes <= bytes; at += line_bytes) {
    std::memcpy(&next, source + at, sizeof next);
    total[0] ^= next;
  }
  total[0] ^= total[1] ^ total[2] ^ total[3];
  int64_t sum = 0;
  for (int word = 0; word < words_per_line; ++word) sum ^= total[0][word];
  return sum;
}

void keep(int64_t value) { asm volatile("" : : "r"(value) : "memory"); }

void stream_out(char* target, const char* source, int64_t bytes) {
#if defined(__x86_64__)
  int64_t at = 0;
  for (; at + 8 <= bytes; at += 8) {
    long long word;
    std::memcpy(&word, source + at, sizeof word);
    __builtin_ia32_movnti64(reinterpret_cast<long long*>(target + at), word);
  }
  __builtin_ia32_sfence();
  std::memcpy(target + at, source + at, static_cast<size_t>(bytes - at));
#else
  std::memcpy(target, source, static_cast<size_t>(bytes));
#endif
}

void empty(int64_t, int64_t, void*, void* const*) {}

void read(int64_t block, int64_t, void*, void* const* arguments) {
  constexpr int64_t part = 64 << 10;
  const int64_t begin = block * part, bytes = argument<int64_t>(arguments, 1);
  keep(sum_of(argument<const char*>(arguments, 0) + begin, std::min(part, bytes - begin)));
}

struct Share {
  int64_t begin, bytes;
};
Share share(int64_t bytes, int64_t block, int64_t blocks) {
  const int64_t begin = bytes / 64 * block / blocks * 64, end = block + 1 == blocks ? bytes : bytes / 64 * (block + 1) / blocks * 64;
  return {begin, end - begin};
}

template <class Write>
void read_and_write(int64_t block, void* const* arguments, Write write) {
  const int64_t blocks = argument<int64_t>(arguments, 4);
  const Share in = share(argument<int64_t>(arguments, 1), block, blocks), out = share(argument<int64_t>(arguments, 3), block, blocks);
  const char* source = argument<const char*>(arguments, 0) + in.begin;
  char* target = argument<char*>(arguments, 2) + out.begin;
  const int64_t both = std::min(in.bytes, out.bytes);
  write(target, source, both);
  if (in.bytes > both) keep(sum_of(source + both, in.bytes - both));
  alignas(64) static const char zeros[4096] = {};
  for (int64_t at = both; at < out.bytes; at += static_cast<int64_t>(sizeof zeros))
    write(target + at, zeros, std::min<int64_t>(sizeof zeros, out.bytes - at));
}

void copy(int64_t block, int64_t, void*, void* const* arguments) {
  read_and_write(block, arguments,
                 [](char* target, const char* source, int64_t bytes) { std::memcpy(target, source, static_cast<size_t>(bytes)); });
}
void stream(int64_t block, int64_t, void*, void* const* arguments) { read_and_write(block, arguments, stream_out); }

AK_EVERY_CPU float multiply_rounds(int64_t rounds) {
  typedef float Floats __attribute__((vector_size(64)));
  Floats sums[16], factor = {}, term = {};
  for (int lane = 0; lane < 16; ++lane) {
    factor[lane] = 0.999f;
    term[lane] = 0.001f * static_cast<float>(lane);
  }
  for (Floats& sum : sums) sum = term;
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (Floats& sum : sums) sum = sum * factor + term;  // in registers, and one instruction where the CPU has it
  }
  float total = 0;
  for (const Floats& sum : sums) total += sum[0] + sum[15];
  return total;
}
void multiply(int64_t, int64_t, void*, void* const* arguments) {
  keep(static_cast<int64_t>(multiply_rounds(argument<int64_t>(arguments, 0))));
}

constexpr KernelParameter pointer{0, 8}, integer{1, 8};
constexpr KernelParameter read_parameters[] = {pointer, integer};
constexpr KernelParameter copy_parameters[] = {pointer, integer, pointer, integer, integer};
constexpr KernelParameter multiply_parameters[] = {integer};

struct Named {
  const char* name;
  KernelRecord record;
};
constexpr Named table[] = {
    {"builtin.empty", {1, 0, nullptr, empty}},
    {"builtin.read", {1, 2, read_parameters, read}},
    {"builtin.copy", {1, 5, copy_parameters, copy}},
    {"builtin.stream", {1, 5, copy_parameters, stream}},
    {"builtin.multiply", {1, 1, multiply_parameters, multiply}},
};

}  // namespace

const KernelRecord* builtin_kernel(const char* name) {
  for (const Named& each : table) {
    if (std::strcmp(each.name, name) == 0) return &each.record;
  }
  return nullptr;
}

}  // namespace ak::device::cpu
