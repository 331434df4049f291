"""What kind of problem a graph is, told by its operators: for scores by family."""

import re

# In order: the first that a graph has is its main operation.
_MAIN = (
    ("recurrent", r"aten\.(lstm|gru|rnn_tanh|rnn_relu)\b"),
    ("attention", r"scaled_dot_product_attention"),
    ("transposed convolution", r"aten\.(conv_transpose\dd|convolution_transpose)"),
    ("convolution", r"aten\.(conv\dd|convolution)\b"),
    ("matmul", r"aten\.(linear|matmul|addmm|baddbmm|einsum|bilinear|mv|dot)\b"),
)
_OTHER = (
    ("loss", r"aten\.(cross_entropy_loss|nll_loss\w*|mse_loss|kl_div|smooth_l1_loss|huber_loss|triplet_margin_loss|hinge\w*|cosine_similarity)"),
    ("scan", r"aten\.(cumsum|cumprod|cummax|logcumsumexp)"),
    ("normalisation", r"aten\.(\w*batch_norm\w*|instance_norm|group_norm|layer_norm|rms_norm|\w*vector_norm|frobenius_norm|norm)\b"),
    ("softmax", r"aten\.(log_)?softmax|aten\.logsumexp"),
    ("pooling", r"aten\.(adaptive_)?(max|avg)_pool"),
    ("reduction", r"aten\.(sum|mean|prod|amax|amin|max|min|argmax|argmin|var|std|all|any)\b"),
)
_DIVIDES = re.compile(r"aten\.(div|mul|rsqrt|sqrt)\b")
_MEANS = re.compile(r"aten\.(mean|var|std|sum)\b")
_NETWORK_FROM = 4  # main operations


def family_of(operators, is_loss=False):
    """The family of a problem whose graph calls `operators`, with repetition: "matmul", "matmul + epilogue", "network", "elementwise", …

    `is_loss`: it makes one number of several inputs.
    """
    mains = [name for operator in operators for name, pattern in _MAIN if re.search(pattern, operator)]
    if len(mains) >= _NETWORK_FROM:
        return "network"
    if mains:
        first = min(mains, key=[name for name, _ in _MAIN].index)
        return first if len(operators) == len(mains) else f"{first} + epilogue"
    if is_loss:
        return "loss"
    if any(map(_MEANS.match, operators)) and any(map(_DIVIDES.match, operators)):
        return "normalisation"  # spelled out
    for name, pattern in _OTHER:
        if any(re.search(pattern, operator) for operator in operators):
            return name
    return "elementwise"
