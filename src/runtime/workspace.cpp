// Cache-line aligned memory.
#include "runtime/workspace.h"

#include <new>

namespace ak::runtime {
namespace {
constexpr std::align_val_t cache_line{64};
}

AlignedBuffer::AlignedBuffer(int64_t size_bytes)
    : data_(static_cast<std::byte*>(::operator new(static_cast<size_t>(size_bytes), cache_line))), size_bytes_(size_bytes) {}

void AlignedBuffer::Free::operator()(std::byte* data) const { ::operator delete(data, cache_line); }

}  // namespace ak::runtime
