// Memory for groups that come and go: neighbours take turns in few buffers, each as long as the longest of its groups.
//
//   turns   0 1 0 1 0 1 2      with two turns a group fills, or is used, while the one before it is on its way;
//   groups  0 1 2 3 4 5 6      one that is needed at other times than its neighbours has a turn of its own
//
// Owner: a parameter store or a gradient store. Threads: one at a time. Blocking: none. Memory is made when it is first
// needed and kept; so what it takes does not change after the first step.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace trireme {

class GroupBuffers {
 public:
  /// Memory of so many elements.
  using Make = std::function<torch::Tensor(int64_t count)>;
  explicit GroupBuffers(Make make = {}) : make_(std::move(make)) {}

  /// A group of this size will come to `turn`. Before the first take().
  void expect(size_t turn, int64_t size);
  bool is_free(size_t turn) const { return turns_[turn].size > 0 && !turns_[turn].used; }
  /// `size` elements: those of the turn, or, where they are in use, others.
  torch::Tensor take(size_t turn, int64_t size);
  /// What take() gave, or a part of it.
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
