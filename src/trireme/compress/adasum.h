// Adasum: a sum of gradients that adds what is orthogonal and averages what is parallel.
//
// Two gradients become (1 − a·b / 2a²) a + (1 − a·b / 2b²) b, tensor by tensor; more of them pairwise, along a tree:
// ranks beyond the largest power of two p first join rank − p, then partners 1, 2, 4, … apart combine. All ranks get
// the same bits. A rank sends its gradient about lg p times. Collective; threads: one; blocking and failure: as the
// communicator.
#pragma once

#include <span>

#include "trireme/comm/communicator.h"
#include "trireme/compress/group_layout.h"
#include "trireme/compress/processor.h"

namespace trireme {

/// `layout` is checked(). a becomes the combination of a and b, which are given in the order of their ranks. A gradient
/// of 0 leaves the other as it is; what is not finite stays not finite. Arrays lie where the processor works.
void adasum_pair(const GroupLayout& layout, std::span<float> a, std::span<const float> b,
                 Processor& processor = host_processor());

/// `values` holds this rank's gradient before and the combination of all after. Returns the bytes that this rank sent.
size_t adasum(Communicator& comm, const GroupLayout& layout, std::span<float> values);
/// The same where a processor works, with as many elements of its memory beside.
size_t adasum(Communicator& comm, const GroupLayout& layout, std::span<float> values, std::span<float> scratch,
              Processor& processor);

}  // namespace trireme
