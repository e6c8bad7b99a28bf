"""Inverted residual blocks of MobileNetV2 and EfficientNet-Lite, with TensorFlow's padding."""

from torch import Tensor, nn
from torch.nn.functional import conv2d, pad, relu6

EPSILON = 1e-3  # of batch normalization, as the weights were trained


class Conv2dSame(nn.Conv2d):
    """A convolution padded like TensorFlow's SAME, which the weights were trained with.

    It differs from torch's padding where a stride of 2 meets an even side: TensorFlow pads one less on the left and top.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, groups: int) -> None:
        super().__init__(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)

    def forward(self, input: Tensor) -> Tensor:
        """Return (N, outputs, ceil(H / stride), ceil(W / stride))."""
        height, width = input.shape[-2:]
        if self.stride[0] == 1 and self.training and min(height, width) < self.kernel_size[0]:
            return self._on_enlarged(input)
        if self.stride[0] == 1 or (height % 2 and width % 2):
            return super().forward(input)
        after = self.kernel_size[0] // 2
        padded = pad(input, (after - 1 + width % 2, after, after - 1 + height % 2, after))
        return conv2d(padded, self.weight, None, self.stride, 0, groups=self.groups)

    def _on_enlarged(self, input: Tensor) -> Tensor:
        """Return the same numbers; oneDNN takes five times as long for the gradient of a kernel wider than its image."""
        kernel = self.kernel_size[0]
        border = (kernel - min(input.shape[-2:]) + 1) // 2
        return conv2d(pad(input, (border,) * 4), self.weight, None, 1, kernel // 2 - border, groups=self.groups)


class ConvBnAct(nn.Module):
    """Convolution, batch normalization and, unless `linear`, ReLU6."""

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, momentum: float, *, groups: int = 1, linear: bool = False
    ) -> None:
        super().__init__()
        self.conv = Conv2dSame(inputs, outputs, kernel, stride, groups)
        self.norm = nn.BatchNorm2d(outputs, eps=EPSILON, momentum=momentum)
        self.linear = linear

    def forward(self, images: Tensor) -> Tensor:
        """Return (N, outputs, H', W')."""
        outputs: Tensor = self.norm(self.conv(images))
        return outputs if self.linear else relu6(outputs, inplace=True)


class InvertedResidual(nn.Module):
    """MobileNetV2's block: expansion, depthwise convolution, projection, and a residual connection if the shapes agree."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int, momentum: float) -> None:
        super().__init__()
        inner = inputs * expansion
        self.expand = ConvBnAct(inputs, inner, 1, 1, momentum) if expansion > 1 else nn.Identity()
        self.depthwise = ConvBnAct(inner, inner, kernel, stride, momentum, groups=inner)
        self.project = ConvBnAct(inner, outputs, 1, 1, momentum, linear=True)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, images: Tensor) -> Tensor:
        """Return (N, outputs, ceil(H / stride), ceil(W / stride))."""
        outputs: Tensor = self.project(self.depthwise(self.expand(images)))
        return outputs.add_(images) if self.residual else outputs
