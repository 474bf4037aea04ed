// Memory for the temporaries of tasks on a CPU.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace et {

// Memory for the temporaries of one task; grows on demand and is kept between tasks.
class Arena {
 public:
  struct Mark { size_t block, used; };

  template <class T> T* take(int64_t count) {
    const size_t bytes = (size_t(std::max<int64_t>(count, 1)) * sizeof(T) + 63) / 64 * 64;
    while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].size) { ++block_; used_ = 0; }
    if (block_ == blocks_.size()) {
      wanted_ = bytes;
      if (count > MOST) throw std::bad_alloc();
      add(bytes);
    }
    char* const at = blocks_[block_].data + used_;
    used_ += bytes;
    return reinterpret_cast<T*>(at);
  }
  Mark mark() const { return {block_, used_}; }
  void rewind(Mark m) { block_ = m.block; used_ = m.used; }
  void reset() { block_ = 0; used_ = 0; }
  // Bytes of the last block that was asked for, whether or not memory had it.
  int64_t wanted() const { return int64_t(wanted_); }

 private:
  static constexpr int64_t MOST = int64_t(1) << 58;  // elements, whose bytes a size_t counts
  struct Block { std::unique_ptr<char[]> own; char* data; size_t size; };

  void add(size_t bytes) {
    const size_t size = std::max<size_t>(bytes, size_t(1) << 16);
    std::unique_ptr<char[]> own(new char[size + 63]);
    const uintptr_t start = (reinterpret_cast<uintptr_t>(own.get()) + 63) / 64 * 64;
    char* const data = reinterpret_cast<char*>(start);
    blocks_.push_back({std::move(own), data, size});
    used_ = 0;
  }

  std::vector<Block> blocks_;
  size_t block_ = 0, used_ = 0, wanted_ = 0;
};

}  // namespace et
