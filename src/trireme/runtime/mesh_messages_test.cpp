#include "trireme/runtime/mesh_messages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/comm/world.h"
#include "trireme/tensor/mesh_tensor.h"
#include "trireme/tensor/redistribute.h"

namespace trireme {
namespace {

const Placement kR = Placement::replicate();
Placement s(int dim) { return Placement::shard(dim); }

std::shared_ptr<DeviceMesh> mesh_of(Communicator& comm, const std::vector<int>& sizes) {
  std::vector<Axis> axes;
  for (const int size : sizes) axes.push_back({fmt::format("axis{}", axes.size()), size});
  return DeviceMesh::make(comm, Mesh(axes));
}

torch::Tensor whole(size_t item, const std::vector<int64_t>& sizes, int micro_batch) {
  const int64_t count = c10::multiply_integers(sizes);
  return (torch::arange(count).to(torch::kFloat) + 1000.0 * static_cast<double>(item + 1) + 0.25 * micro_batch)
      .view(sizes);
}

/// The parts of a rank, one after another, as a form makes them.
torch::Tensor parcel_of(const std::vector<ParcelItem>& items, bool at_sender, const std::shared_ptr<DeviceMesh>& mesh,
                        int micro_batch) {
  std::vector<torch::Tensor> parts;
  for (size_t i = 0; i < items.size(); ++i) {
    const torch::Tensor all = items[i].travels ? whole(i, items[i].sizes, micro_batch) : torch::zeros(items[i].sizes);
    parts.push_back(local_part(distribute(all, mesh, at_sender ? items[i].from : items[i].to)).reshape({-1}));
  }
  return torch::cat(parts);
}

struct Case {
  std::vector<int> from, to;  ///< meshes
  std::vector<ParcelItem> items;
};

std::vector<Case> cases() {
  return {{{2}, {2}, {{{6, 12}, {kR}, {kR}}}},
          {{1}, {3}, {{{6, 12}, {kR}, {kR}}, {{9, 2}, {kR}, {s(0)}}, {{}, {kR}, {kR}}}},
          {{3}, {1}, {{{6, 12}, {s(1)}, {kR}}, {{5}, {kR}, {kR}}}},
          {{2}, {3}, {{{6, 12}, {kR}, {kR}}, {{4, 6}, {s(0)}, {kR}}, {{12}, {kR}, {s(0)}}, {{}, {kR}, {kR}}}},
          {{1, 2}, {2, 1}, {{{4, 6}, {kR, s(1)}, {s(0), kR}}, {{2}, {kR, kR}, {kR, kR}}}},
          {{2, 2}, {2}, {{{8, 4}, {s(0), kR}, {kR}}, {{8}, {kR, s(0)}, {s(0)}}}},
          {{2}, {2, 2}, {{{8}, {kR}, {kR, s(0)}}, {{4, 4}, {s(1)}, {s(0), s(1)}}}}};
}

TEST(MeshMessages, EveryPieceCrossesOnceAndArrives) {
  for (const Case& c : cases()) {
    const MeshSide from{c.from, {}}, to{c.to, {}};
    const int ranks = from.num_ranks() + to.num_ranks();
    run_as_threads(ranks, [&](World& world) {
      at::set_num_threads(1);
      const bool sends = world.rank() < from.num_ranks();
      const auto own = world.comm().split(sends ? 0 : 1, world.rank());
      const auto mesh = mesh_of(*own, sends ? c.from : c.to);
      const auto carrier = world.comm().split(0, world.rank());
      MeshMessages messages(*carrier, 2, torch::kCPU);
      const MeshPlace a{0, c.from, sends ? mesh : nullptr}, b{from.num_ranks(), c.to, sends ? nullptr : mesh};
      messages.set_route(false, 1, ParcelRoute(c.items, a, b, torch::kFloat));
      std::vector<ParcelItem> back = c.items;  // gradients: the first item has none
      for (ParcelItem& item : back) std::swap(item.from, item.to);
      back[0].travels = back.size() == 1;
      messages.set_route(true, 0, ParcelRoute(back, b, a, torch::kFloat));
      const uint64_t before = carrier->traffic().bytes_sent;
      for (int m = 0; m < 2; ++m) {
        if (sends) {
          messages.send({false, 1, m}, 1, {parcel_of(c.items, true, mesh, m)});
          messages.post_receive({true, 0, m}, 1);
          EXPECT_TRUE(torch::equal(messages.take({true, 0, m}).at(0), parcel_of(back, false, mesh, m)));
        } else {
          messages.post_receive({false, 1, m}, 0);
          EXPECT_TRUE(torch::equal(messages.take({false, 1, m}).at(0), parcel_of(c.items, false, mesh, m)));
          messages.send({true, 0, m}, 0, {parcel_of(back, true, mesh, m)});
        }
      }
      messages.finish();
      uint64_t bytes = 0;  // of whole tensors, there and back
      for (size_t i = 0; i < c.items.size(); ++i) {
        const auto count = static_cast<uint64_t>(c10::multiply_integers(c.items[i].sizes));
        bytes += 2 * sizeof(float) * count * (back[i].travels ? 2 : 1);
      }
      std::vector<int64_t> sent = {static_cast<int64_t>(carrier->traffic().bytes_sent - before)};
      world.comm().all_reduce(sent);
      EXPECT_EQ(sent[0], static_cast<int64_t>(bytes)) << from.num_ranks() << " to " << to.num_ranks();
    });
  }
}

TEST(MeshMessages, SendersOfTheSameShareTheWork) {
  run_as_threads(4, [](World& world) {
    const bool sends = world.rank() < 2;
    const auto own = world.comm().split(sends ? 0 : 1, world.rank());
    const auto mesh = mesh_of(*own, {2});
    const ParcelRoute route({{{8, 3}, {kR}, {kR}}}, {0, {2}, sends ? mesh : nullptr}, {2, {2}, sends ? nullptr : mesh},
                            torch::kFloat);
    MeshMessages messages(world.comm(), 1, torch::kCPU);
    const uint64_t before = world.comm().traffic().bytes_sent;
    if (sends) {
      messages.send_now(route, whole(0, {8, 3}, 0).reshape({-1}), 0);
      EXPECT_EQ(world.comm().traffic().bytes_sent - before, 4 * 3 * sizeof(float));
    } else {
      EXPECT_TRUE(torch::equal(messages.receive_now(route, 0).view({8, 3}), whole(0, {8, 3}, 0)));
      EXPECT_EQ(mesh->counts().calls_of(Movement::kAllGather), 1);
    }
  });
}

}  // namespace
}  // namespace trireme
