#include "trireme/runtime/group_buffers.h"

#include <algorithm>

namespace trireme {

void GroupBuffers::expect(size_t turn, int64_t size) {
  if (turns_.size() <= turn) turns_.resize(turn + 1);
  turns_[turn].size = std::max(turns_[turn].size, size);
}

torch::Tensor GroupBuffers::take(size_t turn, int64_t size) {
  Buffer* buffer = is_free(turn) && turns_[turn].size >= size ? &turns_[turn] : nullptr;
  for (Buffer& other : others_) {
    if (!buffer && !other.used && other.size >= size) buffer = &other;
  }
  if (!buffer) buffer = &others_.emplace_back(Buffer{.size = size});
  if (!buffer->memory.defined()) buffer->memory = make_(buffer->size);
  buffer->used = true;
  return buffer->memory.narrow(0, 0, size);
}

void GroupBuffers::give_back(const torch::Tensor& taken) {
  for (std::vector<Buffer>* buffers : {&turns_, &others_}) {
    for (Buffer& buffer : *buffers) {
      if (buffer.memory.defined() && buffer.memory.data_ptr() == taken.data_ptr()) buffer.used = false;
    }
  }
}

size_t GroupBuffers::num_bytes() const {
  size_t sum = 0;
  for (const std::vector<Buffer>* buffers : {&turns_, &others_}) {
    for (const Buffer& buffer : *buffers) sum += buffer.memory.defined() ? buffer.memory.nbytes() : 0;
  }
  return sum;
}

}  // namespace trireme
