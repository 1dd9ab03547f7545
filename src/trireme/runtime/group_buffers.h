// Memory for groups that come and go: neighbours take turns in a few buffers, each as long as its longest group.
//
//   turns   0 1 0 1 0 1 2      with two turns, a group fills, or is used, while the one before it is in flight;
//   groups  0 1 2 3 4 5 6      a group that is needed at other times than its neighbours has a turn of its own
//
// Owner: a ParameterStore or GradientStore. Threads: one at a time. Blocking: none. Buffers are allocated when first
// needed and then kept, so memory use does not change after the first step.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace trireme {

class GroupBuffers {
 public:
  /// Allocates `count` elements.
  using Make = std::function<torch::Tensor(int64_t count)>;
  explicit GroupBuffers(Make make = {}) : make_(std::move(make)) {}

  /// Announces a group of this size for `turn`. Call before the first take().
  void expect(size_t turn, int64_t size);
  bool is_free(size_t turn) const { return turns_[turn].size > 0 && !turns_[turn].used; }
  /// Returns `size` elements: the turn's buffer, or another one if that is in use.
  torch::Tensor take(size_t turn, int64_t size);
  /// Takes back what take() returned, or a view that starts where it starts.
  void give_back(const torch::Tensor& taken);
  size_t num_bytes() const;

 private:
  struct Buffer {
    int64_t size = 0;
    bool used = false;
    torch::Tensor memory = {};
  };
  Make make_;
  std::vector<Buffer> turns_, others_;
};

}  // namespace trireme
