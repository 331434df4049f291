// Empty the caches by reading: no dirty line is left whose write-back would land in the timed launch.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace ak::judge {

/// One thread a CPU, asleep in between; each reads its part of a buffer as large as `bytes`.
class Flusher {
 public:
  Flusher(int64_t bytes, int threads);
  ~Flusher();
  Flusher(const Flusher&) = delete;
  Flusher& operator=(const Flusher&) = delete;

  void flush();
  int64_t bytes() const { return static_cast<int64_t>(buffer_.size() * sizeof(uint64_t)); }

 private:
  void work(size_t thread, size_t threads);

  std::vector<uint64_t> buffer_;
  std::atomic<uint32_t> round_ = 0, finished_ = 0;
  std::atomic<bool> stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ak::judge
