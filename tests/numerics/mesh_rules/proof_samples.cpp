// The calls that prove the rules of mesh tensors. Odd sizes on purpose: parts are uneven, some ranks have none.
#include "numerics/mesh_rules/proof_call.h"

namespace trireme {
namespace {

/// Lines of calls (proof_call.h); "a b: ARGUMENTS" calls several operators alike, "@a" is one without a CPU kernel.
constexpr const char* kLines = R"(
abs acos asin asinh atan atanh ceil cos cosh deg2rad rad2deg digamma elu erf erfc erfinv exp exp2 expm1 floor frac gelu: u[5,6]
acosh p[5]
hardshrink hardsigmoid hardswish hardtanh leaky_relu lgamma log log10 log1p log2 logit mish nan_to_num reciprocal relu: u[6,5]
round rsqrt sgn sigmoid sign silu sin sinc sinh softplus softshrink sqrt tan tanh trunc celu i0 neg angle: u[4,7]
special_entr special_i0e special_i1 special_i1e special_erfcx special_log_ndtr special_ndtri: u[3,5]
gelu relu tanh silu elu leaky_relu hardtanh sigmoid mish abs softplus: x[2,5,3]
gelu x[5,6] 'tanh'
-isnan -isinf -isposinf -isneginf -signbit -logical_not: x[5,3]
bitwise_not i9[5,3]
threshold x[5,3] 0.1 0.5
clone detach alias lift_fresh: x[5,6]
-lift -lift_fresh_copy: x[5,6]
_to_copy x[5,6] 6
_to_copy x[5,6] 4
clamp x[5,6] -0.5 0.5
clamp_max x[5,6] 0.5
clamp_min x[5,6] -0.5
clamp.Tensor x[5,6] x[5,6] x[6]
clamp_max.Tensor clamp_min.Tensor: x[5,6] x[6]
pow.Tensor_Scalar p[5,6] 2.5
pow.Tensor_Tensor p[5,6] p[5,1]
pow.Scalar 2.0 x[5,6]
fmod.Scalar remainder.Scalar: x[5,6] 0.7
fmod.Tensor remainder.Tensor: p[5,6] p[6]
-remainder.Scalar_Tensor 3.0 p[5,6]
polygamma 1 p[5,3]
-igamma -igammac: p[5,3] p[3]
atan2 copysign.Tensor hypot maximum minimum fmax fmin logaddexp logaddexp2 xlogy.Tensor special_xlog1py ldexp.Tensor: p[5,6] p[5,1]
atan2 maximum minimum: p[6] p[5,6]
xlogy.Scalar_Other p[5,3] 0.5
xlogy.Scalar_Self 0.5 p[5,3]
-heaviside -nextafter: x[5,6] x[6]
-floor_divide x[5,6] p[6]
-floor_divide.Scalar x[5,6] 0.3
div.Tensor_mode x[5,6] p[6] 'floor'
div.Scalar_mode x[5,6] 0.3 'trunc'
gcd lcm bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_left_shift.Tensor bitwise_right_shift.Tensor: i9[5,6] i5[6]
bitwise_and.Scalar bitwise_or.Scalar bitwise_xor.Scalar: i9[5,6] 3
eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor: i3[5,6] i3[5,1]
eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar: i3[5,6] 1
logical_and logical_or logical_xor: b[5,6] b[6]
isin.Tensor_Scalar i5[5,6] 3
add.Scalar sub.Scalar rsub.Scalar mul.Scalar div.Scalar: x[5,6] 1.5
add.Tensor sub.Tensor rsub.Tensor mul.Tensor div.Tensor: x[5,6] p[5,6]
add.Tensor sub.Tensor mul.Tensor div.Tensor: x[2,5,6] p[5,1]
add.Tensor x[5] x[6,5] 0.5
mul.Tensor x[] x[6,5]
div.Tensor x[6,5] p[]
mul.Tensor x[1,5] x[5,1]
where.self b[5,6] x[5,6] x[6]
masked_fill.Scalar x[5,6] b[5,6] 0.5
masked_fill.Tensor x[5,6] b[6] x[]
addcmul addcdiv: x[5,6] x[5,6] p[6]
lerp.Tensor x[5,6] x[5,6] u[6]
lerp.Scalar x[5,6] x[6] 0.3
_prelu_kernel x[5,6] u[1,6]
_prelu_kernel_backward x[5,6] x[5,6] u[5,6]
native_dropout_backward x[5,6] b[5,6] 2.0
gelu_backward silu_backward sigmoid_backward tanh_backward hardsigmoid_backward hardswish_backward mish_backward: x[5,6] u[5,6]
threshold_backward x[5,6] x[5,6] 0.0
elu_backward x[5,6] 1.0 1.0 1.0 false x[5,6]
hardtanh_backward x[5,6] x[5,6] -0.5 0.5
leaky_relu_backward x[5,6] x[5,6] 0.1 false
softplus_backward x[5,6] x[5,6] 1.0 20.0
log_sigmoid_forward x[5,6]
log_sigmoid_backward x[5,6] x[5,6] u[5,6]
hardshrink_backward softshrink_backward: x[5,6] x[5,6] 0.5
logit_backward x[5,6] u[5,6]
zeros_like ones_like: x[5,6]
full_like x[5,6] 2.5
?empty_like x[5,6]
abs_ ceil_ cos_ exp_ floor_ gelu_ hardtanh_ leaky_relu_ log_ neg_ reciprocal_ relu_ round_ rsqrt_ sigmoid_ sign_ silu_: u[5,6]
sin_ sqrt_ tanh_ trunc_ elu_ celu_ hardswish_ hardsigmoid_ mish_ erf_ expm1_ log1p_ log2_ log10_ tan_ sinh_ cosh_ frac_ atan_ nan_to_num_: u[5,6]
-logical_not_ b[5,6]
clamp_ x[5,6] -0.5 0.5
clamp_max_ clamp_min_: x[5,6] 0.1
clamp_.Tensor x[5,6] X[6] x[6]
clamp_max_.Tensor clamp_min_.Tensor: x[5,6] x[6]
threshold_ x[5,6] 0.1 0.5
add_.Scalar sub_.Scalar mul_.Scalar div_.Scalar remainder_.Scalar fmod_.Scalar: p[5,6] 1.5
add_.Tensor sub_.Tensor mul_.Tensor div_.Tensor remainder_.Tensor xlogy_.Tensor: p[5,6] p[5,6]
add_.Tensor mul_.Tensor: x[5,6] x[6]
-floor_divide_.Scalar x[5,6] 0.7
pow_.Scalar p[5,6] 2.0
pow_.Tensor p[5,6] p[6]
div_.Tensor_mode x[5,6] p[6] 'floor'
masked_fill_.Scalar x[5,6] b[6] 0.5
masked_fill_.Tensor x[5,6] b[5,6] x[]
addcmul_ addcdiv_: x[5,6] x[5,6] p[5,6]
lerp_.Tensor x[5,6] x[5,6] u[6]
lerp_.Scalar x[5,6] x[5,6] 0.3
-logical_and_ -logical_or_: b[5,6] b[6]
bitwise_and_.Tensor bitwise_or_.Tensor: i9[5,6] i9[6]
-eq_.Tensor -ne_.Tensor -gt_.Tensor -lt_.Tensor -ge_.Tensor -le_.Tensor: i3[5,6] i3[6]
fill.Scalar fill_.Scalar: x[5,6] 0.5
fill.Tensor fill_.Tensor: x[5,6] x[]
zero_ x[5,6]
copy_ x[5,6] x[5,6]
copy_ x[5,6] x[6]
-bernoulli_.float x[5,6] 0.4
-normal_ -uniform_ -exponential_: x[5,6]
-random_ i9[5,6]
-random_.from i9[5,6] 2 9
-random_.to i9[5,6] 9
-rand_like -randn_like: x[5,6]
native_dropout x[5,6] 0.4 true
-native_dropout x[5,6] 0.4 false
sum x[5,6]
sum mean max min: x[3,2,5]
sum.dim_IntList mean.dim amax amin: x[5,6,3] [1]
sum.dim_IntList mean.dim amax amin: x[5,6,3] [0,-1] true
nansum x[5,6] [0]
mean x[5,6]
prod p[5,3]
-all -any: b[5,3]
prod.dim_int p[5,6] 1
-argmax -argmin: x[5,6] 1
-argmax x[5,6]
-all.dim -any.dim: b[5,6] 0
-all.dims -any.dims: b[5,6,2] [0,2]
logsumexp x[5,6] [1]
logsumexp x[5,6] [0] true
max.dim min.dim median.dim nanmedian.dim: x[5,6] 0
mode x[5,6] 0
max.dim x[5,6] 1 true
-aminmax x[5,6] 1
kthvalue x[5,6] 2 0
cumsum logcumsumexp: x[5,6] 0
cumprod p[5,6] 1
cummax cummin: x[5,6] 0
linalg_vector_norm x[5,6] 2.0
linalg_vector_norm x[5,6] 3.0 [1]
linalg_vector_norm x[5,6] 1.0 [0] true
-linalg_vector_norm x[5,6] 0.0
norm.Scalar x[5,6] 2.0
norm.ScalarOpt_dim x[5,6] 2.0 [0]
var.correction std.correction var_mean.correction std_mean.correction: x[5,6] [1] 1
var.correction x[5,6] _ 0
mm x[5,7] x[7,6]
mv x[5,7] x[7]
dot vdot: x[7] x[7]
bmm x[3,5,4] x[3,4,2]
addmm addmm_: x[5,6] x[5,7] x[7,6]
addmm x[6] x[5,7] x[7,6]
addmm x[1,6] x[5,7] x[7,6] 0.5 2.0
addmv addmv_: x[5] x[5,7] x[7]
addr addr_: x[5,6] x[5] x[6]
baddbmm baddbmm_: x[3,5,2] x[3,5,4] x[3,4,2]
baddbmm x[5,2] x[3,5,4] x[3,4,2]
view _unsafe_view _reshape_copy view_copy: x[4,6] [2,2,6]
view x[4,6] [24]
view x[4,8] [32]
view x[8,4] [2,4,4]
view x[8] [4,2]
view x[2,6,3] [12,3]
view x[2,6,3] [2,-1]
view x[12,5] [2,6,5]
view x[12,5] [4,3,5]
view x[6,4] [6,1,4]
view x[5,6] [5,3,2]
view x[7,6] [7,2,3]
_reshape_alias x[4,6] [8,3] [3,1]
permute permute_copy: x[5,6,2] [2,0,1]
transpose.int transpose_copy.int transpose_: x[5,6,2] 0 -1
t t_copy t_: x[5,6]
unsqueeze unsqueeze_copy unsqueeze_: x[5,6] 1
squeeze squeeze_copy squeeze_: x[5,1,6]
squeeze squeeze_: x[2,3,4,1]
squeeze.dim squeeze_copy.dim squeeze_.dim: x[5,1,6] 1
squeeze.dim x[2,4] 0
squeeze.dims squeeze_copy.dims squeeze_.dims: x[1,5,1,6] [0,2]
expand expand_copy: x[5,1] [2,5,6]
expand x[5,1] [-1,6]
expand x[6] [5,6]
slice.Tensor slice_copy.Tensor: x[8,6] 1 2 5
slice.Tensor x[8,6] 0 4 8
slice.Tensor x[8,6] 0 0 4
slice.Tensor x[8,6] 0 1 7 2
slice.Tensor x[8,6] 0 -4
select.int select_copy.int: x[5,6,2] 1 3
split.Tensor unsafe_split.Tensor: x[8,6] 4 0
split.Tensor x[5,6] 2 1
split_with_sizes unsafe_split_with_sizes split_with_sizes_copy: x[12,3] [4,8]
split_with_sizes x[8,3] [4,2,2]
split_with_sizes x[5,9] [3,3,3] 1
unbind.int unbind_copy.int: x[5,3] 1
slice_backward x[5,3] [5,6] 1 1 4 1
select_backward x[5,3] [5,6,3] 1 2
diagonal diagonal_copy: x[3,5,4] 0 1 2
diagonal x[3,5,4] 1 -1 0
diagonal_backward x[3,4] [3,5,4] 0 1 2
unfold unfold_copy: x[5,7] 1 3 2
unfold_backward x[5,3,3] [5,7] 1 3 2
native_layer_norm x[5,2,6] [6] x[6] x[6] 0.001
native_layer_norm x[5,3,2] [3,2] _ _ 0.001
1native_layer_norm x[5,2,6] [6] x[6] x[6] 0.001
native_layer_norm x[4,6] [6] x[6] _ 0.001
native_layer_norm_backward x[5,6] x[5,6] [6] x[5,1] p[5,1] x[6] x[6] [true,true,true]
native_layer_norm_backward x[5,2,6] x[5,2,6] [6] x[5,2,1] p[5,2,1] x[6] x[6] [true,false,true]
_fused_rms_norm x[5,6] [6] x[6] 0.001
_softmax _log_softmax: x[5,6] 1 false
_softmax _log_softmax: x[5,6,2] 0 false
_softmax_backward_data _log_softmax_backward_data: x[5,6] u[5,6] -1 7
_softmax_backward_data _log_softmax_backward_data: x[5,6] u[5,6] 0 7
nll_loss_forward x[5,7] i7[5] _ 1 -100
nll_loss_forward x[5,7] i7[5] P[7] 1 3
nll_loss_forward x[5,7] i7[5] P[7] 2 -100
nll_loss_forward x[5,7] i7[5] _ 0 2
nll_loss_forward x[7] i7[] _ 1 -100
nll_loss_backward x[] x[5,7] i7[5] p[7] 1 3 p[]
nll_loss_backward x[] x[5,7] i7[5] _ 2 -100 p[]
nll_loss_backward x[5] x[5,7] i7[5] _ 0 -100 p[]
mse_loss smooth_l1_loss huber_loss: x[5,6] x[5,6]
mse_loss smooth_l1_loss huber_loss: x[5,6] x[5,6] 2
mse_loss x[5,6] x[5,6] 0
mse_loss_backward x[] x[5,6] x[5,6] 1
mse_loss_backward x[5,6] x[5,6] x[5,6] 0
smooth_l1_loss_backward huber_loss_backward: x[] x[5,6] x[5,6] 1 0.7
smooth_l1_loss_backward huber_loss_backward: x[] x[5,6] x[5,6] 2 0.7
binary_cross_entropy u[5,6] u[5,6] P[6]
binary_cross_entropy_with_logits x[5,6] u[5,6] _ P[6]
binary_cross_entropy_with_logits x[5,6] u[5,6] P[5,6] _ 2
binary_cross_entropy_backward x[] u[5,6] u[5,6] _ 1
embedding x[7,6] i7[5,2]
embedding x[7,6] i7[5] 3
embedding_dense_backward x[5,2,6] i7[5,2] 7 -1 false
embedding_dense_backward x[5,6] i7[5] 7 2 true
_scaled_dot_product_flash_attention_for_cpu x[3,4,5,8] x[3,4,6,8] x[3,4,6,8]
_scaled_dot_product_flash_attention_for_cpu x[2,6,5,8] x[2,6,5,8] x[2,6,5,8] 0.0 true
-_scaled_dot_product_flash_attention_for_cpu x[2,4,5,8] x[2,4,5,8] x[2,4,5,8] 0.0 false x[2,1,5,5]
_scaled_dot_product_flash_attention_for_cpu_backward x[3,4,5,8] x[3,4,5,8] x[3,4,5,8] x[3,4,5,8] x[3,4,5,8] x[3,4,5] 0.0 true
@_scaled_dot_product_flash_attention
@_scaled_dot_product_flash_attention_backward
@_scaled_dot_product_efficient_attention
@_scaled_dot_product_efficient_attention_backward
@_scaled_dot_product_cudnn_attention
@_scaled_dot_product_cudnn_attention_backward
@_fused_rms_norm_backward
convolution x[3,4,5,6] x[6,4,3,3] x[6] [1,1] [1,1] [1,1] false [0,0] 1
convolution x[3,4,5] x[5,4,3] _ [1] [0] [1] false [0] 1
convolution x[3,4,5,6] x[4,2,2,2] x[4] [1,1] [0,0] [1,1] false [0,0] 2
convolution x[3,4,5,6] x[4,6,2,2] x[6] [2,2] [0,0] [1,1] true [0,0] 1
convolution_backward x[3,6,5,6] x[3,4,5,6] x[6,4,3,3] [6] [1,1] [1,1] [1,1] false [0,0] 1 [true,true,true]
convolution_backward x[3,6,5,6] x[3,4,5,6] x[6,4,3,3] _ [1,1] [1,1] [1,1] false [0,0] 1 [true,true,false]
native_batch_norm x[4,6,3,2] x[6] x[6] X[6] P[6] true 0.1 0.001
native_batch_norm x[4,6,3,2] x[6] x[6] X[6] P[6] false 0.1 0.001
1native_batch_norm x[4,6] x[6] x[6] _ _ true 0.1 0.001
native_batch_norm_backward x[4,6,3,2] x[4,6,3,2] x[6] x[6] p[6] x[6] p[6] true 0.001 [true,true,true]
native_batch_norm_backward x[4,6,3,2] x[4,6,3,2] x[6] x[6] p[6] x[6] p[6] false 0.001 [true,true,true]
1native_group_norm x[5,6,3,2] x[6] x[6] 5 6 6 2 0.001
native_group_norm_backward x[5,6,3,2] x[5,6,3,2] x[5,2] p[5,2] x[6] 5 6 6 2 [true,true,true]
max_pool2d_with_indices x[3,5,6,4] [2,2]
max_pool2d_with_indices_backward x[3,5,3,2] x[3,5,6,4] [2,2] [2,2] [0,0] [1,1] false i4[3,5,3,2]
avg_pool2d x[3,5,6,4] [2,2]
avg_pool2d x[5,6,4] [2,2]
avg_pool2d_backward x[3,5,3,2] x[3,5,6,4] [2,2] [2,2] [0,0] false true _
_adaptive_avg_pool2d x[3,5,6,4] [2,2]
_adaptive_avg_pool2d_backward x[3,5,2,2] x[3,5,6,4]
upsample_nearest2d x[3,5,3,2] [6,4]
upsample_nearest2d_backward x[3,5,6,4] [6,4] [3,5,3,2]
cat {x[5,3] x[5,4]} 1
cat {x[5,3] x[2,3] x[1,3]} 0
stack {x[5,3] x[5,3]} 1
index_select x[5,6] 1 i6[4]
index_select x[7,2] 0 i7[5]
gather x[5,6] 1 i6[5,3]
gather x[5,6] 0 i5[7,6]
-scatter.value x[5,6] 1 i6[5,6] 0.5
-scatter_.value x[5,6] 1 i6[5,6] 0.5
scatter_add scatter_add_: x[5,6] 1 i6[5,4] x[5,4]
scatter_add x[5,6] 0 i5[3,6] x[3,6]
-scatter.src -scatter_.src: x[5,6] 1 i6[5,1] x[5,1]
-scatter_reduce.two -scatter_reduce_.two: x[5,6] 1 i6[5,4] x[5,4] 'amax'
index_copy index_copy_: x[5,6] 0 k[5] x[5,6]
index_add index_add_: x[5,6] 0 i5[7] x[7,6]
index_add x[5,6] 1 i6[4] x[5,4]
index_fill.int_Scalar index_fill_.int_Scalar: x[5,6] 1 i6[3] 0.5
index_fill.int_Tensor x[5,6] 1 i6[3] x[]
index.Tensor _unsafe_index.Tensor: x[5,6] {i5[4]}
index.Tensor x[5,6,3] {_ i6[4]}
index.Tensor x[5,6,3] {i5[4,2] i6[4,2]}
index.Tensor x[5,6,3] {i5[4] _ i3[4]}
index.Tensor x[5,6] {b[5]}
index.Tensor x[5,6] {b[5,6]}
index_put index_put_ _index_put_impl_ _unsafe_index_put: x[5,6] {i5[4]} x[4,6] true
index_put x[5,6] {_ k[6]} x[5,6]
index_put x[5,6] {i5[4]} x[] true
index_put x[5,6] {b[5,6]} x[]
tril triu tril_ triu_: x[3,5,4] 1
flip x[5,6,2] [0,2]
roll x[5,6] [2] [1]
roll x[5,6] [2]
repeat x[5,6] [2,1,3]
constant_pad_nd x[5,6] [1,2]
constant_pad_nd x[5,6] [0,0,1,0] 0.5
sort x[5,6] 1
sort.stable x[5,6] true 0
topk x[5,6] 2 1
glu x[5,6] 1
glu_backward x[5,3] x[5,6] 1
-_local_scalar_dense x[]
-equal x[5,3] x[5,3]
-masked_select x[5,3] b[5,3]
-nonzero b[5,3]
median x[5,3]
trace x[5,4]
-_unique i3[7]
-_unique2 i3[7]
-bincount i5[7]
-new_zeros -new_ones: x[5,6] [3,4]
-new_full x[5,6] [3,4] 0.5
?new_empty x[5,6] [3,4]
?new_empty_strided x[5,6] [3,4] [4,1]
?new_empty_strided x[5,6] [5,6] [1,5]
linear x[5,7] x[6,7] x[6]
linear x[2,5,7] x[6,7]
linear x[3,2,4] x[6,4] x[6]
matmul x[2,3,5,4] x[2,3,4,2]
matmul x[5,4] x[4]
matmul x[3,5,4] x[4,6]
layer_norm x[5,2,6] [6] x[6] x[6]
rms_norm x[5,6] [6] x[6] 0.001
softmax.int log_softmax.int: x[5,6] 1
cross_entropy_loss x[5,7] i7[5]
cross_entropy_loss x[5,7] i7[5] P[7] 2 3
cross_entropy_loss x[5,7] i7[5] _ 1 -100 0.1
cross_entropy_loss x[5,7] i7[5] _ 0
nll_loss_nd x[5,7] i7[5]
scaled_dot_product_attention x[3,4,5,8] x[3,4,5,8] x[3,4,5,8] _ 0.0 true
scaled_dot_product_attention x[2,6,5,8] x[2,6,5,8] x[2,6,5,8] b[5,5]
scaled_dot_product_attention x[2,6,5,8] x[2,2,5,8] x[2,2,5,8] _ 0.0 true _ true
scaled_dot_product_attention x[2,12,5,8] x[2,4,5,8] x[2,4,5,8] _ 0.0 false _ true
conv2d x[3,4,5,6] x[6,4,3,3] x[6] [1,1] [1,1]
batch_norm x[4,6,3,2] x[6] x[6] X[6] P[6] true 0.1 0.001 false
group_norm x[5,6,3,2] 2 x[6] x[6]
max_pool2d x[3,5,6,4] [2,2]
adaptive_avg_pool2d x[3,5,6,4] [1,1]
reshape x[5,6] [6,5]
flatten.using_ints x[3,4,5] 1
chunk x[8,3] 2
narrow x[5,6] 1 2 3
contiguous square relu6 selu: x[5,6]
einsum 'bij,bkj->bik' {x[3,5,2] x[3,4,2]}
dropout x[5,6] 0.4 true
-isfinite x[5,6]
-one_hot i5[6] 5
repeat_interleave.self_int x[5,6] 2 1
pad x[5,6] [1,1]
outer x[5] x[6]
movedim.int x[5,6,2] 0 2
swapaxes x[5,6] 0 1
unflatten.int x[5,6] 1 [2,3]
hinge_embedding_loss x[5,6] x[5,6]
l1_loss kl_div: x[5,6] u[5,6]
cosine_similarity x[5,6] x[5,6]
var.dim std.dim: x[5,6] [0]
square_ x[5,6]
where.ScalarOther b[5,6] x[5,6] 0.5
tile x[5,6] [2,1]
hstack vstack: {x[5,3] x[5,3]}
)";

std::vector<std::string> expand() {
  std::vector<std::string> lines;
  std::string_view text = kLines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos) {
      lines.emplace_back(line);
      continue;
    }
    const std::string arguments(line.substr(colon + 1));
    std::string_view names = line.substr(0, colon);
    while (!names.empty()) {
      const size_t stop = std::min(names.find(' '), names.size());
      lines.push_back(std::string(names.substr(0, stop)) + arguments);
      names.remove_prefix(std::min(stop + 1, names.size()));
    }
  }
  return lines;
}

}  // namespace

const std::vector<std::string>& proof_lines() {
  static const std::vector<std::string> lines = expand();
  return lines;
}

}  // namespace trireme
