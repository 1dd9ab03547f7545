#include "trireme/cli/bench_train_kernels.h"

#include <gtest/gtest.h>

namespace trireme::cli {
namespace {

TEST(KernelClass, IsToldByTheName) {
  // As the profiler prints them; in each the part that matters is not the only one that some rule knows.
  const std::pair<const char*, const char*> kKnown[] = {
      {"nvjet_sm90_tst_192x128_64x5_1x2_h_bz_coopA_geluauxbias_auxt_TNN", "matrix products"},
      {"sm90_xmma_gemm_bf16bf16_bf16f32_f32_nn_n_tilesize128x128x64_aux_bf16_dgelu_execute", "matrix products"},
      {"void cublasLt::splitKreduce_kernel<32, 16, int, float>(cublasLt::cublasSplitKParams<float>)",
       "matrix products"},
      {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu>()", "matrix products"},
      {"cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1", "attention"},
      {"void cudnn::fusion::matmul_dq<true, 64>(void const*, void const*, void*)", "attention"},
      {"fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", "attention"},
      {"void trireme::gpu::(anonymous namespace)::cross_entropy_rows<__nv_bfloat16, true>(CrossEntropyShape)", "loss"},
      {"void trireme::gpu::(anonymous namespace)::sum_values<4>(float const*, long, float, float*)", "loss"},
      {"void trireme::gpu::norm_backward<__nv_bfloat16, 8, trireme::gpu::NormTeam<32, 24, 2>, true>(long)", "norms"},
      {"void trireme::gpu::(anonymous namespace)::block_sums_kernel<float>(trireme::gpu::NormTable)", "optimizer"},
      {"trireme::gpu::(anonymous namespace)::tree_kernel(trireme::gpu::NormTable, StepValues*)", "optimizer"},
      {"void trireme::gpu::(anonymous namespace)::update_kernel<(Rule)2, float, __nv_bfloat16>()", "optimizer"},
      {"void trireme::gpu::(anonymous namespace)::chunk_sums<__nv_bfloat16, 8>()", "column sums and biases"},
      {"void trireme::gpu::(anonymous namespace)::quantise_kernel<(__nv_fp8_interpretation_t)1, FromGeluGradient, "
       "true>()",
       "8-bit copies"},
      {"trireme::gpu::(anonymous namespace)::update_scales_kernel(trireme::gpu::Fp8Scale*, long)", "8-bit copies"},
      {"trireme::gpu::(anonymous namespace)::partial_sums(float const*, long)", "column sums and biases"},
      {"void trireme::gpu::(anonymous namespace)::look_up<__nv_bfloat16, 8>(EmbeddingShape)", "embedding"},
      {"void trireme::gpu::(anonymous namespace)::sum_chunk<__nv_bfloat16, 8>(EmbeddingShape)", "embedding"},
      {"trireme::gpu::(anonymous namespace)::number_rows(long const*, long, long)", "embedding"},
      {"void cub::CUB_300001_SM_900::detail::radix_sort::DeviceRadixSortOnesweepKernel<>()", "embedding"},
      {"void trireme::gpu::(anonymous namespace)::map<__nv_bfloat16, 8, false>()", "activations"},
      {"void trireme::gpu::(anonymous namespace)::swiglu_map<__nv_bfloat16, 8, true>()", "activations"},
      {"Memcpy DtoD (Device -> Device)", "copies and casts"},
      {"memset32", "copies and casts"},
      {"void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda()>", "copies and casts"},
      {"void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda>", "copies and casts"},
      {"void trireme::gpu::(anonymous namespace)::convert_elements<float, __nv_bfloat16>()", "copies and casts"},
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"},
      {"void trireme::gpu::(anonymous namespace)::combine_kernel<float>(Table)", "communication"},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>()", "rest"},
      {"", "rest"},
  };
  for (const auto& [name, expected] : kKnown) EXPECT_EQ(kernel_class(name), expected) << name;
}

TEST(TimeByClass, AddsUpAndPutsTheRestLast) {
  const auto classes = time_by_class({{"something new", 90'000},
                                      {"Memcpy HtoD", 1'000},
                                      {"nvjet_a", 20'000},
                                      {"cudnn_sdpa", 30'000},
                                      {"nvjet_b", 15'000},
                                      {"gelu", 0}});
  ASSERT_EQ(classes.size(), 4u);
  EXPECT_EQ(classes[0].name, "matrix products");
  EXPECT_DOUBLE_EQ(classes[0].ms, 35);
  EXPECT_EQ(classes[1].name, "attention");
  EXPECT_EQ(classes[2].name, "copies and casts");
  EXPECT_EQ(classes[3].name, "rest");
  EXPECT_DOUBLE_EQ(classes[3].ms, 90);
  EXPECT_TRUE(time_by_class({}).empty());
}

}  // namespace
}  // namespace trireme::cli
