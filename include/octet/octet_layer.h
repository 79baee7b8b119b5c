/* The C interface of Octet's layers: GroupedLinear and the Mixture-of-Experts layer. See octet.h for handles, status
 * codes and tensors; everything it says holds here.
 *
 * M rows (tokens times top_k), T tokens, D hidden, H expert hidden, E experts, N out-features, K in-features.
 */
#ifndef OCTET_OCTET_LAYER_H
#define OCTET_OCTET_LAYER_H

#include "octet/octet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- GroupedLinear ---------------------------------------------------------------------------------------------- */

/* Y[M,N] = A[M,K] . W[E,N,K]^T, group by group, and its gradients, under a recipe. The recipe is copied. */
typedef struct octet_grouped_linear octet_grouped_linear;
OCTET_API octet_status octet_grouped_linear_create(int64_t experts, int64_t out_features, int64_t in_features,
                                                   const octet_recipe* recipe, octet_grouped_linear** linear);
OCTET_API void octet_grouped_linear_destroy(octet_grouped_linear* linear);

/* w [E, N, K], bf16 or f32: borrowed. Call weights_changed whenever its elements have changed. */
OCTET_API octet_status octet_grouped_linear_bind_weights(octet_grouped_linear* linear, const octet_tensor* w);
OCTET_API octet_status octet_grouped_linear_weights_changed(octet_grouped_linear* linear);

/* Which casts are made in halves, the second beside a product, instead of those that the cost model names: "none", or
 * some of "A and forward, W and forward, dY and dgrad" (as `octet info --step` prints them). For timing;
 * results do not depend on it. */
OCTET_API octet_status octet_grouped_linear_arrange_casts(octet_grouped_linear* linear, const char* beside);

/* Forward keeps what backward needs; with wgrad=bf16, or the recipe bf16, that is `a` itself, which must then stay as
 * it is until backward. backward: da and dw may be NULL; dw is overwritten, or with `accumulate` not 0 added to (f32).
 */
OCTET_API octet_status octet_grouped_linear_forward(octet_grouped_linear* linear, const octet_tensor* a,
                                                    const octet_groups* groups, octet_tensor* y,
                                                    const octet_execution* on);
OCTET_API octet_status octet_grouped_linear_backward(octet_grouped_linear* linear, const octet_tensor* dy,
                                                     const octet_groups* groups, octet_tensor* da, octet_tensor* dw,
                                                     int32_t accumulate, const octet_execution* on);
/* Bytes kept by the last forward, and visits of activations, gradients and weights by a quantizer. Any may be NULL. */
OCTET_API octet_status octet_grouped_linear_report(const octet_grouped_linear* linear, int64_t* kept_bytes,
                                                   int64_t* activation_casts, int64_t* gradient_casts,
                                                   int64_t* weight_casts);
/* What the products of a step of `tokens` tokens run in, printed as octet_recipe_print does: "forward bf16, dgrad bf16,
 * wgrad fp8". It depends on the recipe, the shape, the weights' format and device, and on nothing else. */
OCTET_API octet_status octet_grouped_linear_choice(const octet_grouped_linear* linear, int64_t tokens, char* buffer,
                                                   size_t capacity, size_t* needed);

/* ---- the Mixture-of-Experts layer ------------------------------------------------------------------------------- */

/* Options and their values, the default first where there is one:
 *   hidden, expert_hidden, experts, top_k     numbers, which must be set
 *   shared_hidden                             0: no shared experts
 *   score            softmax | sigmoid
 *   weights          normalized | as_scored
 *   scaling          1
 *   balance          none | bias
 *   balance_rate     0.001
 *   auxiliary_loss   0
 *   activations      bf16 | f32
 *   recipe           fp8_rowwise, or any text that octet_recipe_parse takes
 */
typedef struct octet_moe_options octet_moe_options;
OCTET_API octet_status octet_moe_options_create(octet_moe_options** options);
OCTET_API octet_status octet_moe_options_set(octet_moe_options* options, const char* name, const char* value);
OCTET_API void octet_moe_options_destroy(octet_moe_options* options);

/* A layer with its parameters, their gradients, and memory for one forward and backward at a time. */
typedef struct octet_moe_layer octet_moe_layer;
OCTET_API octet_status octet_moe_layer_create(const octet_moe_options* options, octet_moe_layer** layer);
OCTET_API void octet_moe_layer_destroy(octet_moe_layer* layer);

/* Parameters by name: router [E, D], experts.gate_up [E, 2H, D] (gate first), experts.down [E, D, H], shared.gate_up,
 * shared.down. Both pointers are to f32 elements of the layer itself; `elements` says how many. After changing values
 * call weights_changed. Backward adds into gradients. */
OCTET_API octet_status octet_moe_layer_parameter(octet_moe_layer* layer, const char* name, float** value,
                                                 float** gradient, int64_t* elements);
OCTET_API octet_status octet_moe_layer_weights_changed(octet_moe_layer* layer);
OCTET_API octet_status octet_moe_layer_zero_gradients(octet_moe_layer* layer);

/* x, y, dy, dx [T, D] in the layer's activation format. x must stay as it is until backward. */
OCTET_API octet_status octet_moe_layer_forward(octet_moe_layer* layer, const octet_tensor* x, octet_tensor* y,
                                               const octet_execution* on);
OCTET_API octet_status octet_moe_layer_backward(octet_moe_layer* layer, const octet_tensor* dy, octet_tensor* dx,
                                                float auxiliary_scale, const octet_execution* on);

/* Of the last forward: the auxiliary loss, and the experts that each token chose, best first: chosen[T * top_k]. */
OCTET_API octet_status octet_moe_layer_auxiliary_loss(const octet_moe_layer* layer, float* loss);
OCTET_API octet_status octet_moe_layer_chosen(const octet_moe_layer* layer, int32_t* chosen, int64_t capacity);

/* The bias of the balanced choice: [E] f32 of the layer itself, and its update, once an optimizer step. */
OCTET_API octet_status octet_moe_layer_balance_bias(octet_moe_layer* layer, float** bias);
OCTET_API octet_status octet_moe_layer_update_balance(octet_moe_layer* layer);

#ifdef __cplusplus
}
#endif

#endif
