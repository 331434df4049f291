// Threads pinned to the CPUs of this process, since each core has caches of its own.
#include "judge/flusher.h"

#include <pthread.h>
#include <sched.h>

namespace ak::judge {
namespace {

void pin(std::thread& thread, size_t which) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  const int wanted = static_cast<int>(which) % CPU_COUNT(&allowed);
  int seen = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || seen++ != wanted) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ::pthread_setaffinity_np(thread.native_handle(), sizeof one, &one);
    return;
  }
}

}  // namespace

Flusher::Flusher(int64_t bytes, int threads) : buffer_(static_cast<size_t>(bytes) / sizeof(uint64_t), 1) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, i, threads] { work(static_cast<size_t>(i), static_cast<size_t>(threads)); });
    pin(threads_.back(), static_cast<size_t>(i));
  }
}

Flusher::~Flusher() {
  stop_ = true;
  ++round_;
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Flusher::flush() {
  finished_ = 0;
  ++round_;
  round_.notify_all();
  for (uint32_t seen = 0; (seen = finished_) < threads_.size();) finished_.wait(seen);
}

void Flusher::work(size_t thread, size_t threads) {
  const size_t begin = buffer_.size() * thread / threads, end = buffer_.size() * (thread + 1) / threads;
  for (uint32_t round = 0;;) {
    round_.wait(round);
    ++round;
    if (stop_) return;
    uint64_t sum = 0;
    for (size_t word = begin; word < end; word += 8) sum += buffer_[word];  // one word a line
    asm volatile("" : : "r"(sum));
    if (++finished_ == threads) finished_.notify_all();
  }
}

}  // namespace ak::judge
