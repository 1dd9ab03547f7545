// The ways to perform an all-reduce, by name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace trireme {

enum class Algorithm : uint8_t {
  kAuto,              ///< the tuner chooses
  kSequential,        ///< one rank gathers one after another, then sends back one after another
  kServer,            ///< a parameter server: all push at once, the server sums, all pull at once
  kRing,              ///< reduce-scatter and all-gather around a ring, chunked
  kParallel,          ///< everybody sends everything to everybody at once
  kRecursiveHalving,  ///< halving reduce-scatter and doubling all-gather, nearest partner first
  kFarthestFirst,     ///< the same with the farthest partner first
  kTree,              ///< two complementary binary trees, pipelined
  kButterfly,         ///< recursive doubling of whole vectors
  kOrdered,           ///< all-to-all, a local sum in tree order, all-gather
  kTwoLevel,          ///< inside each host, then between hosts
  kInPlace,           ///< shared memory: each rank sums its slice of all buffers where they are
};

std::string_view name_of(Algorithm algorithm);
/// Throws UsageError with the nearest name and the list.
Algorithm algorithm_named(std::string_view name);
/// All but kAuto, in the order of the enumeration.
std::span<const Algorithm> all_algorithms();

}  // namespace trireme
