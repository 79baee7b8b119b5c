/* The C interface of Octet's model and optimizer: what a training loop in another language needs. See octet.h for
 * status codes; everything it says holds here.
 *
 * B sequences, S tokens each, V vocabulary.
 */
#ifndef OCTET_OCTET_TRAIN_H
#define OCTET_OCTET_TRAIN_H

#include "octet/octet.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A decoder-only Mixture-of-Experts transformer with its parameters and their gradients. */
typedef struct octet_model octet_model;

/* config: a preset's name, the path of a TOML file, or TOML itself (anything with a line break in it). recipe is of the
 * expert products, dense_recipe of the others with weights; both as octet_recipe_parse takes them. activations: "bf16"
 * or "f32". threads: 0 means every core; results do not depend on it. Weights are drawn from the seed. */
OCTET_API octet_status octet_model_create(const char* config, const char* recipe, const char* dense_recipe,
                                          const char* activations, uint64_t seed, int32_t threads, octet_model** model);
OCTET_API void octet_model_destroy(octet_model* model);

/* The whole configuration as TOML; the text lives as long as the model. */
OCTET_API octet_status octet_model_config(const octet_model* model, const char** toml);

/* Parameters in a fixed order. The pointers are to f32 elements of the model itself and live as long as it; shape has
 * room for 4 sizes. decays: whether weight decay applies. Any output may be NULL. After changing values call
 * weights_changed. Backward passes add into gradients. */
OCTET_API octet_status octet_model_parameter_count(const octet_model* model, int64_t* count);
OCTET_API octet_status octet_model_parameter(const octet_model* model, int64_t index, const char** name, float** value,
                                             float** gradient, int32_t* rank, int64_t* shape, int32_t* decays);
OCTET_API octet_status octet_model_weights_changed(octet_model* model);
OCTET_API octet_status octet_model_zero_gradients(octet_model* model);

/* The parameters and the state that is not trained, as a safetensors file. */
OCTET_API octet_status octet_model_save(const octet_model* model, const char* path);

/* tokens and targets [B, S]; a negative target is not counted. The loss is the mean cross-entropy of the others; scale
 * times the gradient of (loss + auxiliary loss) is added to every gradient. loss and auxiliary_loss may be NULL. */
OCTET_API octet_status octet_model_forward_backward(octet_model* model, const int32_t* tokens, const int32_t* targets,
                                                    int64_t sequences, int64_t length, double scale, double* loss,
                                                    double* auxiliary_loss);
OCTET_API octet_status octet_model_loss(octet_model* model, const int32_t* tokens, const int32_t* targets,
                                        int64_t sequences, int64_t length, double* loss);
/* logits [B * S, V] f32; `capacity` is the number of floats there is room for. */
OCTET_API octet_status octet_model_logits(octet_model* model, const int32_t* tokens, int64_t sequences, int64_t length,
                                          float* logits, int64_t capacity);

/* AdamW with the [training] options of the model's configuration. It borrows the model, which must outlive it. A step
 * clips, moves the weights, zeroes the gradients and tells the model; gradient_norm is the one before clipping and may
 * be NULL. Where it is not finite nothing changes. */
typedef struct octet_adamw octet_adamw;
OCTET_API octet_status octet_adamw_create(octet_model* model, octet_adamw** optimizer);
OCTET_API void octet_adamw_destroy(octet_adamw* optimizer);
OCTET_API octet_status octet_adamw_step(octet_adamw* optimizer, double learning_rate, double* gradient_norm);

#ifdef __cplusplus
}
#endif

#endif
