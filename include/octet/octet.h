/* The C interface of Octet.
 *
 * Every function that can fail returns an octet_status. When it is not OCTET_OK, nothing was written anywhere, handles
 * were not made, and octet_last_error() says, for the calling thread, what was given, what was expected and what to do.
 * No C++ exception leaves the library.
 *
 * Handles are opaque, made by octet_*_create (or parse) and freed by octet_*_destroy, which takes NULL too. A tensor
 * handle is a view: it owns no elements, and neither does anything made from it. A handle may be used by several
 * threads at once as long as none of them changes it.
 *
 * Enumerations are int32_t, so that their size does not depend on the compiler. Values are never renumbered; functions
 * and option names are only added within one OCTET_ABI_VERSION.
 *
 * Shapes: M tokens, K features, G groups, E experts; B is the scaling's block (blockwise 128, mx 32); P is the padded
 * token axis, at least octet_padded_bound(M, G, alignment) long.
 *
 *                          data         scale: rowwise   blockwise               mx (e8m0)
 *   rows        x[M,K]     [M,K]        [M]              [M, ceil(K/B)]          [M, ceil(K/B)]
 *   columns     x[M,K]     [K,P]        [G,K]            [K, P/B]                [K, P/B]
 *   transposed  x[N,M]     [N,P]        [G,N]            [N, P/B]                [N, P/B]
 *   weights     w[E,N,K]
 *     along_k              [E,N,K]      [E,N]            [E,ceil(N/B),ceil(K/B)] [E,N,ceil(K/B)]
 *     along_n              [E,K,N]      [E,K]            [E,ceil(K/B),ceil(N/B)] [E,K,ceil(N/B)]
 *
 * The last axis of inputs and data steps by 1; scales may have any strides.
 */
#ifndef OCTET_OCTET_H
#define OCTET_OCTET_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define OCTET_API
#else
#define OCTET_API __attribute__((visibility("default")))
#endif

#define OCTET_VERSION_MAJOR 0
#define OCTET_VERSION_MINOR 1
#define OCTET_VERSION_PATCH 0
#define OCTET_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status and errors ------------------------------------------------------------------------------------------ */

typedef int32_t octet_status;
enum {
    OCTET_OK = 0,
    OCTET_INVALID_ARGUMENT = 1, /* the caller can mend it */
    OCTET_UNSUPPORTED = 2,      /* valid, but this build or device cannot do it */
    OCTET_OUT_OF_MEMORY = 3,
    OCTET_IO_ERROR = 4,
    OCTET_DEVICE_ERROR = 5, /* the driver or a kernel failed */
    OCTET_INTERNAL = 6      /* a bug in Octet */
};

/* "ok", "invalid argument", ...; "unknown status" for a number that is none. Never NULL. */
OCTET_API const char* octet_status_name(octet_status status);

/* What the last failing call on this thread had to say; "" when none has failed. Valid until the next failure on this
 * thread. Calls that succeed leave it as it is. Never NULL. */
OCTET_API const char* octet_last_error(void);

/* ---- version ---------------------------------------------------------------------------------------------------- */

OCTET_API const char* octet_version(void);    /* of the library: "0.1.0" */
OCTET_API int32_t octet_abi_version(void);    /* compare with OCTET_ABI_VERSION */
OCTET_API const char* octet_build_info(void); /* one line: version, commit, compiler, backends */

/* ---- formats ---------------------------------------------------------------------------------------------------- */

typedef int32_t octet_format;
enum {
    OCTET_F32 = 0,
    OCTET_BF16 = 1,
    OCTET_E4M3 = 2,     /* OCP, max 448 */
    OCTET_E4M3FNUZ = 3, /* AMD gfx942, max 240 */
    OCTET_E5M2 = 4,     /* max 57344 */
    OCTET_E8M0 = 5      /* MX scales */
};

OCTET_API const char* octet_format_name(octet_format format); /* NULL when unknown */
OCTET_API octet_status octet_format_parse(const char* text, octet_format* format);
OCTET_API octet_status octet_format_bytes(octet_format format, int64_t* bytes); /* of one element */

/* f32 values to codes of a format and back: nearest even, saturating; e8m0 rounds up to a power of two. `codes` holds
 * `count` elements of the format. The two arrays do not overlap. */
OCTET_API octet_status octet_encode(octet_format format, const float* values, int64_t count, void* codes);
OCTET_API octet_status octet_decode(octet_format format, const void* codes, int64_t count, float* values);

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

typedef int32_t octet_device_kind;
enum { OCTET_DEVICE_CPU = 0, OCTET_DEVICE_CUDA = 1, OCTET_DEVICE_HIP = 2 };

#define OCTET_MAX_RANK 4

typedef struct octet_tensor octet_tensor;

/* A view of `data`: shape[rank], and strides[rank] in elements, or NULL for contiguous. The arrays are copied, the
 * elements are not. What an operation needs of the view (alignment, strides, shape) is checked by that operation. */
OCTET_API octet_status octet_tensor_create(void* data, octet_format format, int32_t rank, const int64_t* shape,
                                           const int64_t* strides, octet_device_kind device_kind, int32_t device_index,
                                           octet_tensor** tensor);
/* Points the view at other elements of the same shape. */
OCTET_API octet_status octet_tensor_set_data(octet_tensor* tensor, void* data);
OCTET_API void octet_tensor_destroy(octet_tensor* tensor);

/* Cumulative end offsets of the token groups: group g owns the rows from ends[g-1] (0 for the first) up to ends[g]. A
 * group may be empty; rows past the last offset belong to nobody. `ends` is read by each call, not copied, and lives
 * on the device of the tensors. */
typedef struct octet_groups octet_groups;
OCTET_API octet_status octet_groups_create(const int32_t* ends, int64_t count, octet_device_kind device_kind,
                                           int32_t device_index, octet_groups** groups);
OCTET_API void octet_groups_destroy(octet_groups* groups);

/* Quantized elements and their scales, one orientation. rowwise and blockwise: `scale` is the f32 multiplier that was
 * applied, `inverse` its reciprocal; either may be NULL, not both. mx: `scale` is e8m0 and `inverse` is NULL. The views
 * are copied: the tensor handles may be destroyed afterwards. */
typedef struct octet_quantized octet_quantized;
OCTET_API octet_status octet_quantized_create(const octet_tensor* data, const octet_tensor* scale,
                                              const octet_tensor* inverse, octet_quantized** quantized);
OCTET_API void octet_quantized_destroy(octet_quantized* quantized);

/* ---- recipes and options ---------------------------------------------------------------------------------------- */

/* A named, complete choice: "bf16", "fp8_rowwise", "fp8_blockwise", "mxfp8", with options that differ from the
 * defaults: "fp8_rowwise:scales=exact,gradient=e5m2". */
typedef struct octet_recipe octet_recipe;
OCTET_API octet_status octet_recipe_parse(const char* text, octet_recipe** recipe);
OCTET_API void octet_recipe_destroy(octet_recipe* recipe);

/* Functions that print: the text with its final zero is written when it fits `capacity` bytes, and `needed` (may be
 * NULL) receives the bytes it takes. buffer NULL with capacity 0 asks for the size alone; a buffer that is too small is
 * an error and is left as it is, and so is `needed`. */
OCTET_API octet_status octet_recipe_print(const octet_recipe* recipe, char* buffer, size_t capacity, size_t* needed);

typedef int32_t octet_role; /* of a tensor in a training step: a recipe may give gradients a format of their own */
enum { OCTET_ROLE_ACTIVATION = 0, OCTET_ROLE_WEIGHT = 1, OCTET_ROLE_GRADIENT = 2 };

/* How to quantize. Options and their values, the default first:
 *   scaling         rowwise | blockwise | mx
 *   format          e4m3 | e4m3fnuz | e5m2
 *   scale_rounding  power_of_two | exact          rowwise and blockwise
 *   mx_mode         rceil | floor | ceil | even   mx
 */
typedef struct octet_quantize_options octet_quantize_options;
OCTET_API octet_status octet_quantize_options_create(octet_quantize_options** options);
OCTET_API octet_status octet_quantize_options_from_recipe(const octet_recipe* recipe, octet_role role,
                                                          octet_quantize_options** options);
OCTET_API octet_status octet_quantize_options_set(octet_quantize_options* options, const char* name, const char* value);
OCTET_API octet_status octet_quantize_options_get(const octet_quantize_options* options, const char* name, char* buffer,
                                                  size_t capacity, size_t* needed);
OCTET_API void octet_quantize_options_destroy(octet_quantize_options* options);

/* ---- execution -------------------------------------------------------------------------------------------------- */

typedef int32_t octet_backend;
enum {
    OCTET_BACKEND_AUTOMATIC = 0, /* the fast implementation for the tensors' device */
    OCTET_BACKEND_REFERENCE = 1, /* the scalar definition: slow, the oracle of the tests */
    OCTET_BACKEND_CPU = 2,
    OCTET_BACKEND_CUDA = 3,
    OCTET_BACKEND_HIP = 4
};

/* Where and how a call runs. NULL wherever one is taken means the defaults: automatic, every core, the default stream.
 * On a GPU the tensors' device must be the calling thread's current one (cudaSetDevice), and the stream of it. */
typedef struct octet_execution octet_execution;
OCTET_API octet_status octet_execution_create(octet_execution** execution);
OCTET_API octet_status octet_execution_set_backend(octet_execution* execution, octet_backend backend);
OCTET_API octet_status octet_execution_set_threads(octet_execution* execution, int32_t threads); /* 0: every core */
OCTET_API octet_status octet_execution_set_stream(octet_execution* execution, void* stream);     /* GPU */
OCTET_API octet_status octet_execution_set_workspace(octet_execution* execution, void* memory, size_t bytes); /* GPU */
OCTET_API void octet_execution_destroy(octet_execution* execution);

/* ---- devices ---------------------------------------------------------------------------------------------------- */

/* How many devices of a kind this build can use and this machine has; always 1 for the CPU. */
OCTET_API octet_status octet_device_count(octet_device_kind kind, int32_t* count);
/* A device's name, printed as octet_recipe_print does. */
OCTET_API octet_status octet_device_name(octet_device_kind kind, int32_t index, char* buffer, size_t capacity,
                                         size_t* needed);
/* Waits until what was asked of the device is done. Nothing to wait for on the CPU. */
OCTET_API octet_status octet_device_synchronize(octet_device_kind kind, int32_t index);

/* ---- sizes ------------------------------------------------------------------------------------------------------ */

/* The most columns that `count` groups of `tokens` rows together can take when each starts on a multiple of
 * `alignment`: what to allocate without knowing the offsets. */
OCTET_API octet_status octet_padded_bound(int64_t tokens, int64_t count, int64_t alignment, int64_t* bound);
/* Bytes of the blocked layout of rows x columns MX scales; and when the rows are split into `count` groups. */
OCTET_API octet_status octet_swizzled_bytes(int64_t rows, int64_t columns, int64_t* bytes);
OCTET_API octet_status octet_swizzled_group_bytes(int64_t rows, int64_t columns, int64_t count, int64_t* bytes);

/* ---- quantizers ------------------------------------------------------------------------------------------------- */

/* Along K: every row of x has its own scale or scales. */
OCTET_API octet_status octet_quantize_rows(const octet_tensor* x, const octet_quantize_options* options,
                                           octet_quantized* out, const octet_execution* on);

/* Along tokens: every column of every group has its own scale or scales; the data is transposed, and each group starts
 * on a multiple of `alignment` (a multiple of the block, for blockwise and mx) and ends in zeros. */
OCTET_API octet_status octet_quantize_columns(const octet_tensor* x, const octet_groups* groups, int64_t alignment,
                                              const octet_quantize_options* options, octet_quantized* out,
                                              const octet_execution* on);
/* The same for two tensors that share rows and groups. */
OCTET_API octet_status octet_quantize_columns_dual(const octet_tensor* x0, const octet_tensor* x1,
                                                   const octet_groups* groups, int64_t alignment,
                                                   const octet_quantize_options* options, octet_quantized* out0,
                                                   octet_quantized* out1, const octet_execution* on);
/* Both orientations of x from one visit. */
OCTET_API octet_status octet_quantize_pair(const octet_tensor* x, const octet_groups* groups, int64_t alignment,
                                           const octet_quantize_options* options, octet_quantized* rows,
                                           octet_quantized* columns, const octet_execution* on);
/* Along tokens, from a tensor whose tokens are already contiguous: x[N, M]. */
OCTET_API octet_status octet_quantize_transposed(const octet_tensor* x, const octet_groups* groups, int64_t alignment,
                                                 const octet_quantize_options* options, octet_quantized* out,
                                                 const octet_execution* on);
/* Expert weights: along K for the forward product, along N (transposed) for the input gradient. Either may be NULL. */
OCTET_API octet_status octet_quantize_weights(const octet_tensor* w, const octet_quantize_options* options,
                                              octet_quantized* along_k, octet_quantized* along_n,
                                              const octet_execution* on);

/* Back to bf16 or f32, in the layout of the tensor that was quantized. Rows that no group owns are left as they are. */
typedef int32_t octet_weight_orientation;
enum { OCTET_ALONG_K = 0, OCTET_ALONG_N = 1 };
OCTET_API octet_status octet_dequantize_rows(const octet_quantized* q, const octet_quantize_options* options,
                                             octet_tensor* x, const octet_execution* on);
OCTET_API octet_status octet_dequantize_columns(const octet_quantized* q, const octet_groups* groups, int64_t alignment,
                                                const octet_quantize_options* options, octet_tensor* x,
                                                const octet_execution* on);
OCTET_API octet_status octet_dequantize_transposed(const octet_quantized* q, const octet_groups* groups,
                                                   int64_t alignment, const octet_quantize_options* options,
                                                   octet_tensor* x, const octet_execution* on);
OCTET_API octet_status octet_dequantize_weights(const octet_quantized* q, octet_weight_orientation orientation,
                                                const octet_quantize_options* options, octet_tensor* w,
                                                const octet_execution* on);

/* ---- layouts ---------------------------------------------------------------------------------------------------- */

/* Token groups to aligned starts with zero rows between, and back. Any format. padded: [P, K]. padded_ends[G] (may be
 * NULL) receives the cumulative ends of the padded groups. unpad leaves rows that no group owns as they are. */
OCTET_API octet_status octet_pad_groups(const octet_tensor* x, const octet_groups* groups, int64_t alignment,
                                        octet_tensor* padded, int32_t* padded_ends, const octet_execution* on);
OCTET_API octet_status octet_unpad_groups(const octet_tensor* padded, const octet_groups* groups, int64_t alignment,
                                          octet_tensor* x, const octet_execution* on);

/* The blocked layout of MX scales: 128 x 4 tiles of 512 bytes, byte (r%32)*16 + (r/32)*4 + c, zero padded.
 *   scale [R,C]   <-> blocked [octet_swizzled_bytes(R, C)]
 *   scale [E,R,C] <-> blocked [E, octet_swizzled_bytes(R, C)]
 *   groups along R: each group starts on a new multiple of 128 rows; blocked [octet_swizzled_group_bytes(R, C, G)] */
OCTET_API octet_status octet_swizzle_scales(const octet_tensor* scale, octet_tensor* blocked,
                                            const octet_execution* on);
OCTET_API octet_status octet_unswizzle_scales(const octet_tensor* blocked, octet_tensor* scale,
                                              const octet_execution* on);
OCTET_API octet_status octet_swizzle_group_scales(const octet_tensor* scale, const octet_groups* groups,
                                                  octet_tensor* blocked, const octet_execution* on);
OCTET_API octet_status octet_unswizzle_group_scales(const octet_tensor* blocked, const octet_groups* groups,
                                                    octet_tensor* scale, const octet_execution* on);

/* ---- permutation ------------------------------------------------------------------------------------------------ */

/* T tokens go to top_k experts each: slot t * top_k + j is token t's j-th choice; a row is a slot's place after sorting
 * by expert. The two lists are each other's inverse, are read by each call, not copied, and live on the device of the
 * tensors. An index outside the other list (-1, say) is a slot that was dropped: its row is zero, and it adds nothing.
 */
typedef struct octet_token_order octet_token_order;
OCTET_API octet_status octet_token_order_create(int64_t tokens, int64_t top_k, int64_t rows, const int32_t* row_of_slot,
                                                const int32_t* slot_of_row, octet_device_kind device_kind,
                                                int32_t device_index, octet_token_order** order);
OCTET_API void octet_token_order_destroy(octet_token_order* order);

/* rows[m] = tokens[slot_of_row[m] / top_k]. Any format. */
OCTET_API octet_status octet_permute_tokens(const octet_token_order* order, const octet_tensor* tokens,
                                            octet_tensor* rows, const octet_execution* on);
/* y[t] = the sum of weight * row over token t's slots in their order, then each addend [T,D] (at most 3). weights
 * [T*top_k] by slot may be NULL: 1. */
OCTET_API octet_status octet_combine_tokens(const octet_token_order* order, const octet_tensor* rows,
                                            const float* weights, const octet_tensor* const* addends,
                                            int32_t addend_count, octet_tensor* y, const octet_execution* on);
/* drows[m] = weight * dy[t], and the weights' gradients [T*top_k], which may be NULL; rows may be NULL then too. */
OCTET_API octet_status octet_combine_tokens_backward(const octet_token_order* order, const octet_tensor* dy,
                                                     const octet_tensor* rows, const float* weights,
                                                     octet_tensor* drows, float* weight_gradients,
                                                     const octet_execution* on);

/* ---- SwiGLU ----------------------------------------------------------------------------------------------------- */

/* s[m,h] = weight[m] * silu(gate_up[m,h]) * gate_up[m,H+h], from gate_up [M,2H]. weights [M] may be NULL: 1. */
OCTET_API octet_status octet_swiglu(const octet_tensor* gate_up, const float* weights, octet_tensor* s,
                                    const octet_execution* on);
/* dgate_up [M,2H] from ds [M,H], and the weights' gradients [M], which may be NULL. */
OCTET_API octet_status octet_swiglu_backward(const octet_tensor* gate_up, const float* weights, const octet_tensor* ds,
                                             octet_tensor* dgate_up, float* weight_gradients,
                                             const octet_execution* on);
/* What octet_quantize_rows, and octet_quantize_columns where columns is not NULL, would make of s, and of dgate_up;
 * groups may be NULL where columns is. */
OCTET_API octet_status octet_swiglu_quantize(const octet_tensor* gate_up, const float* weights,
                                             const octet_groups* groups, int64_t alignment,
                                             const octet_quantize_options* options, octet_quantized* rows,
                                             octet_quantized* columns, const octet_execution* on);
OCTET_API octet_status octet_swiglu_backward_quantize(const octet_tensor* gate_up, const float* weights,
                                                      const octet_tensor* ds, const octet_groups* groups,
                                                      int64_t alignment, const octet_quantize_options* options,
                                                      octet_quantized* rows, octet_quantized* columns,
                                                      float* weight_gradients, const octet_execution* on);

/* ---- grouped products ------------------------------------------------------------------------------------------- */

/* One side of a product: plain bf16 or f32, or 8-bit elements with their scales ("rowwise", "blockwise" or "mx").
 * rowwise and blockwise products read `inverse`, mx ones `scale`. The views are copied. */
typedef struct octet_operand octet_operand;
OCTET_API octet_status octet_operand_create_plain(const octet_tensor* values, octet_operand** operand);
OCTET_API octet_status octet_operand_create_quantized(const octet_quantized* values, const char* scaling,
                                                      octet_operand** operand);
OCTET_API void octet_operand_destroy(octet_operand* operand);

/* Options and their values, the default first; NULL wherever they are taken means the defaults.
 *   update         overwrite | add (into an f32 output; forward and dgrad into bf16 too, rounded before it is added)
 *   accumulation   promoted | fast
 */
typedef struct octet_product_options octet_product_options;
OCTET_API octet_status octet_product_options_create(octet_product_options** options);
OCTET_API octet_status octet_product_options_set(octet_product_options* options, const char* name, const char* value);
OCTET_API octet_status octet_product_options_get(const octet_product_options* options, const char* name, char* buffer,
                                                 size_t capacity, size_t* needed);
OCTET_API void octet_product_options_destroy(octet_product_options* options);

/* Every token group times its own expert's weights; as many groups as experts. N out-features, K in-features.
 *
 *   forward   y[M,N]    = a . w^T     a: rows [M,K]        w: along_k [E,N,K]
 *   dgrad     da[M,K]   = dy . w      dy: rows [M,N]       w: along_n [E,K,N], or plain [E,N,K]
 *   wgrad     dw[E,N,K] = dy^T . a    dy: columns [N,P]    a: columns [K,P], or plain [M,N] and [M,K]
 *
 * The output is bf16 or f32. Rows that no group owns are left as they are; the gradient of an empty group is zero.
 * Rows of operands may be further apart than they are long (octet_tensor_create): on a GPU 8-bit rows [M,K], [M,N] and
 * of weights are read at full speed where they start on multiples of 128 bytes. `alignment` is the one that the columns
 * were quantized with; plain operands ignore it. */
OCTET_API octet_status octet_grouped_forward(const octet_operand* a, const octet_operand* w, const octet_groups* groups,
                                             octet_tensor* y, const octet_product_options* options,
                                             const octet_execution* on);
OCTET_API octet_status octet_grouped_dgrad(const octet_operand* dy, const octet_operand* w, const octet_groups* groups,
                                           octet_tensor* da, const octet_product_options* options,
                                           const octet_execution* on);
OCTET_API octet_status octet_grouped_wgrad(const octet_operand* dy, const octet_operand* a, const octet_groups* groups,
                                           int64_t alignment, octet_tensor* dw, const octet_product_options* options,
                                           const octet_execution* on);

#ifdef __cplusplus
}
#endif

#endif
