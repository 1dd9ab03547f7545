// All-reduce over a double binary tree: two trees in which no rank has children twice, each with half of the data.
//
//   first tree, 8 ranks:   0              second tree: the first one mirrored (p even) or shifted by one (p odd), so
//                          4              that the ranks without children in one have them in the other and all links
//                        2   6            carry the same load.
//                       1 3 5 7
#include <algorithm>
#include <bit>

#include "trireme/comm/algorithms/algorithms.h"

namespace trireme {
namespace {

struct Node {
  int parent = -1;
  std::vector<int> children;  // at most two
};

// Rank r > 0 stands as high as its number of trailing zeros; rank 0 is above all.
int parent_in_first_tree(int rank, int p) {
  if (rank == 0) return -1;
  const int low = rank & -rank;
  const int above = (rank - low) | (2 * low);
  return above < p ? above : rank - low;
}

Node node_of(int rank, int p, bool second) {
  const auto map = [&](int r) { return !second ? r : p % 2 == 0 ? p - 1 - r : (r + 1) % p; };
  const auto unmap = [&](int r) { return !second ? r : p % 2 == 0 ? p - 1 - r : (r + p - 1) % p; };
  Node node;
  const int place = map(rank);
  const int above = parent_in_first_tree(place, p);
  if (above >= 0) node.parent = unmap(above);
  for (int r = 0; r < p; ++r) {
    if (r != place && parent_in_first_tree(r, p) == place) node.children.push_back(unmap(r));
  }
  return node;
}

}  // namespace

void all_reduce_tree(Messenger& messenger, Data data, ReduceOp op) {
  const int p = messenger.size(), rank = messenger.rank();
  if (p == 1) return;
  const Node nodes[2] = {node_of(rank, p, false), node_of(rank, p, true)};
  const Part halves[2] = {part_of(data.count, 2, 0), part_of(data.count, 2, 1)};
  const size_t block = std::max<size_t>(Messenger::kBlockBytes / 4 / size_of(data.type), 1);
  const size_t blocks = std::max<size_t>((halves[0].count + block - 1) / block, 1);
  const auto part = [&](int tree, size_t b) {
    const size_t first = std::min(b * block, halves[tree].count);
    return data.part(halves[tree].first + first, std::min(block, halves[tree].count - first));
  };

  const size_t scratch_bytes = std::min(block, halves[0].count) * size_of(data.type);
  const Bytes scratch[2] = {messenger.scratch(scratch_bytes), messenger.scratch(scratch_bytes)};
  // Sums rise, results come down; lane 1 and 2 for the first tree, 3 and 4 for the second.
  const auto raise = [&](int tree, size_t b) {
    const Data own = part(tree, b);
    const auto& children = nodes[tree].children;
    std::vector<Messenger::Ticket> arriving;
    for (size_t c = 0; c < children.size(); ++c) {
      arriving.push_back(messenger.start_recv(children[c], scratch[c].first(own.num_bytes()), 1 + 2 * tree));
    }
    if (!arriving.empty()) messenger.wait(arriving);
    for (size_t c = 0; c < children.size(); ++c) {
      combine(op, data.type, own.bytes, own.bytes, scratch[c].data(), own.count);
    }
    if (nodes[tree].parent >= 0) messenger.start_send(nodes[tree].parent, bytes_of(ConstData(own)), 1 + 2 * tree);
  };
  const auto lower = [&](int tree, size_t b) {
    const Data own = part(tree, b);
    if (nodes[tree].parent >= 0) messenger.wait(messenger.start_recv(nodes[tree].parent, bytes_of(own), 2 + 2 * tree));
    for (const int child : nodes[tree].children) messenger.start_send(child, bytes_of(ConstData(own)), 2 + 2 * tree);
  };
  // Neither tree waits for the other: first what needs nobody, last what nobody needs.
  const bool second_is_thinner = nodes[1].children.size() < nodes[0].children.size();
  const int rises_first = second_is_thinner ? 1 : 0;
  const int sinks_first = nodes[0].parent < 0 ? 0 : nodes[1].parent < 0 || !second_is_thinner ? 1 : 0;

  // Results lag behind sums by the depth of the tree: then they are there when they are asked for.
  const size_t lag = static_cast<size_t>(std::bit_width(static_cast<unsigned>(p)));
  for (size_t b = 0; b < blocks + lag; ++b) {
    for (const int tree : {rises_first, 1 - rises_first}) {
      if (b < blocks) raise(tree, b);
    }
    for (const int tree : {sinks_first, 1 - sinks_first}) {
      if (b >= lag) lower(tree, b - lag);
    }
  }
  messenger.finish();
}

}  // namespace trireme
